"""What tests of several folders share: runners with their buses, servers that end with the tests, choices of cases."""
