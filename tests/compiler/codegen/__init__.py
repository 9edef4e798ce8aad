"""Tests of compiler/codegen. golden/: the generated sources that test_golden compares."""
