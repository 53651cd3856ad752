"""How to call `prolip serve`, as OpenAPI 3.1 has it."""

from collections.abc import Sequence
from typing import Any

import prolip

_RANKED = {
    "type": "object",
    "properties": {"class": {"type": "string"}, "probability": {"type": "number"}},
}
_ANSWER = {
    "type": "object",
    "properties": {
        "image": {"type": "string", "description": "The file's name, or its place in the request."},
        "class": {"type": ["string", "null"], "description": "null: none of the classes."},
        "probability": {"type": "number"},
        "rejected": {"type": "boolean"},
        "top": {"type": "array", "items": _RANKED},
        "error": {"type": "string", "description": "In place of the others: the picture cannot be read."},
    },
}
_ERROR = {
    "description": "What is wrong, in a sentence.",
    "content": {
        "application/json": {"schema": {"type": "object", "properties": {"error": {"type": "string"}}}}
    },
}


def description(models: Sequence[str], token: bool) -> dict[str, Any]:
    """The document for these models."""
    paths: dict[str, Any] = {
        "/predict": {"post": _predict(models)},
        "/models": {"get": _get("Models, their classes and held-out accuracy.", "array")},
        "/healthz": {"get": {**_get("Whether the server runs.", "object"), "security": []}},
        "/openapi.json": {"get": _get("This document.", "object")},
    }
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "prolip serve", "version": prolip.__version__},
        "paths": paths,
    }
    if token:
        found["components"] = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
        found["security"] = [{"token": []}]
    return found


def _predict(models: Sequence[str]) -> dict[str, Any]:
    base64 = {"type": "string", "contentEncoding": "base64"}
    several = {
        "type": "object",
        "properties": {"model": {"type": "string"}, "predictions": {"type": "array", "items": _ANSWER}},
    }
    return {
        "summary": "What is in a picture, or in several.",
        "parameters": [
            _query("model", {"type": "string", "enum": list(models)}, "The first unless named."),
            _query("top", {"type": "integer", "minimum": 1}, "How many classes to rank."),
            _query("reject", {"type": "boolean"}, "Whether pictures of no class get the class null."),
        ],
        "requestBody": {
            "required": True,
            "content": {
                "image/*": {"schema": {"type": "string", "format": "binary"}},
                "multipart/form-data": {
                    "schema": {
                        "type": "object",
                        "properties": {
                            "image": {"type": "array", "items": {"type": "string", "format": "binary"}}
                        },
                    }
                },
                "application/json": {
                    "schema": {
                        "type": "object",
                        "properties": {"image": base64, "images": {"type": "array", "items": base64}},
                    }
                },
            },
        },
        "responses": {
            "200": {
                "description": "One answer for a single picture, a list of them for several.",
                "content": {"application/json": {"schema": {"oneOf": [_ANSWER, several]}}},
            },
            **dict.fromkeys(("400", "401", "413", "422", "503"), _ERROR),
        },
    }


def _query(name: str, schema: dict[str, Any], about: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema, "description": about}


def _get(summary: str, kind: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"type": kind}}}
    return {"summary": summary, "responses": {"200": {"description": "OK", "content": content}}}
