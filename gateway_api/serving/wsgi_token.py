"""What gunicorn serves as the alternative profile: `gateway_api.serving.wsgi_token:app`."""

import os

from gateway_api.base.settings import TokenSettings
from gateway_api.web.token_app import create_token_app
from gateway_api.web.token_services import TokenServices

app = create_token_app(TokenServices.from_settings(TokenSettings.from_environment(os.environ)))
