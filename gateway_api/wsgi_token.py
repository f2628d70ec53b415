"""What gunicorn serves as the alternative profile: `gateway_api.wsgi_token:app`."""

import os

from gateway_api.app_token import create_token_app
from gateway_api.settings import TokenSettings
from gateway_api.token_services import TokenServices

app = create_token_app(TokenServices.from_settings(TokenSettings.from_environment(os.environ)))
