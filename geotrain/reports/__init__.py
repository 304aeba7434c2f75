"""What people and machines see, a package for each thing reported. Simulates and measures nothing."""
