"""Limits of an image: environment variables `RUNWIRE_*`, the same for every service that accepts images."""

from pydantic import Field

from services.runtime.settings import BusSettings


class ImageSettings(BusSettings):
    """Limits of one image."""

    max_image_bytes: int = Field(default=10 << 20, ge=1024, description="of each image, decoded from base64")
    max_image_pixels: int = Field(default=40_000_000, ge=1, description="width times height of an image")
    max_image_side: int = Field(default=16_384, ge=1, description="width or height of an image")
