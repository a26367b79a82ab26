"""What a comparison supports, in numbers and in words."""
