"""Tools of the tests: servers, workloads, faults, and the oracle that judges what landed."""
