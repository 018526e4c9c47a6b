"""Endpoints of the page's sign-in: an administrator makes a one-time code, and the page exchanges it for a token.

`jobplane page` calls the first with the administrator's token of its data folder. The page calls the second, without a token.
"""

from datetime import datetime
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends

from app.api.auth.signin_codes import CODE_LIFE, create_code, redeem_code
from app.api.dependencies import CurrentUser, RegistryDep, require_path
from app.api.routers.join import NoOptions, SmallBody
from app.api.struct_route import StructRoute
from app.client.protocol import SIGNIN, SIGNIN_CODES
from app.machinery.base import Struct, at, wire_name

router = APIRouter(tags=["page"], route_class=StructRoute)


class SignIn(Struct):
    """The body of POST /ui/signin."""

    code: Annotated[str, at(0, "One-time code, as `jobplane page` makes them.")] = ""


class SignInCode(msgspec.Struct, rename=wire_name):
    """A one-time code, and when it ends."""

    code: str
    expires_at: datetime


class SignedIn(msgspec.Struct, rename=wire_name):
    """A token for the page, and when it ends."""

    token: str
    expires_at: datetime


@router.post(SIGNIN_CODES, status_code=201, summary="Create a sign-in code", dependencies=[Depends(require_path)])
async def create_signin_code(
    registry: RegistryDep, user: CurrentUser, _: Annotated[NoOptions, Depends(SmallBody(NoOptions))]
) -> SignInCode:
    """A code stands for the user who makes it. Administrators may, and users whose ClusterRole names this path."""
    return SignInCode(await create_code(registry, user), registry.now() + CODE_LIFE)


@router.post(SIGNIN, status_code=201, summary="Sign in by a code", openapi_extra={"security": []})
async def sign_in(registry: RegistryDep, asked: Annotated[SignIn, Depends(SmallBody(SignIn))]) -> SignedIn:
    """Exchange a code for a token that lasts 12 hours. Each code works once."""
    return SignedIn(*await redeem_code(registry, asked.code))
