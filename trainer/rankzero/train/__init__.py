"""What a training script imports. The loop stays the script's own."""
