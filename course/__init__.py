"""What a course needs around the lesson."""
