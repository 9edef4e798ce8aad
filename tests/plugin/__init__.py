"""Tests of the plugin, in a folder for each folder of plugin/. device has no twin there: jobs on the tests' GPU. scripts: the
programs that tests start as jobs; prepared: jobs as forks of one process that has TensorFlow imported."""
