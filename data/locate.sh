#!/usr/bin/env bash
# Prints the folder of the data to use, and first gets or makes them if there are none: locate.py.
folder=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
exec "$("$folder/setup/python.sh")" "$folder/bench" data.locate "$@"
