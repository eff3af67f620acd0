"""What runs: services that each have one testable step."""
