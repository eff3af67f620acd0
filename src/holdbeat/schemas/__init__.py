"""The JSON of requests and answers, declared once: the OpenAPI document and the types of the clients come from here.

Each schema is a TypedDict. `Annotated` carries what JSON Schema says beyond the type (bounds, format, description), a
docstring becomes the description, and the decorators of `base` mark requests, changes and open objects. Nothing here
checks anything: requests are checked by the operations, within the same bounds (`field_bounds`), and tests compare real
answers with these schemas.

These modules do not postpone annotations: `__required_keys__` of a TypedDict is wrong with postponed ones.
"""
