# SPDX-License-Identifier: Apache-2.0
"""Pictures of the figures of a report: one module per form, each `draw(figure) -> Sheet`.

Matplotlib is imported with the first picture, for most commands draw none.
"""
