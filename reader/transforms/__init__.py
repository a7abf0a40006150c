"""Transforms of whole batches, in the graph: masks, spans, packing, images."""
