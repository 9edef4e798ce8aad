"""writer: loops as C. kernel_prelude.h, kernel_math.h, kernel_trigonometry.h: what the text calls."""
