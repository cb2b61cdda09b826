// Includes cmocka.h after the headers that it needs before it.
#ifndef TESTS_CMOCKA_TESTS_H
#define TESTS_CMOCKA_TESTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
