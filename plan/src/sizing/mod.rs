//! What a budget costs: a trace replayed through the cleaning policies of the region, on a virtual clock.
