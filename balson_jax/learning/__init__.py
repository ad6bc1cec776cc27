"""What data tell about models and settings: comparison and tuning by evidence."""
