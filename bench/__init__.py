"""Side-by-side measurements, one question each; what they found lies in results/."""
