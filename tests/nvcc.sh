#!/usr/bin/env bash
# Stands in for nvcc where there is no GPU: what it builds is the program for the simulated device.
set -euo pipefail
root=$(realpath --relative-to=. "$(dirname "${BASH_SOURCE[0]}")/..")
declared=()
while (($#)); do
    case $1 in
    --version) echo 'a simulated device, release 0.0' && exit ;;
    -o) output=$2 && shift ;;
    *.cu) source=$1 ;;
    -DCAPABILITY=* | -DINSTEAD=*) declared+=("$(tr -d '"' <<<"${1#-D}")") ;;
    esac
    shift
done
# What shared code is needed, the Makefile behind it knows.
unset MAKEFLAGS
make -s -f "$root/common/cuda.mk" SOURCE="$source" OUTPUT="$output.new" NVCC=nvcc "${declared[@]}" sim
mv "$output.new.sim" "$output"
