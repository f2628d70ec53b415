"""What gunicorn serves: `gateway_api.serving.wsgi:app`."""

import os

from gateway_api.base.settings import Settings
from gateway_api.web.app import create_app
from gateway_api.web.services import Services

services = Services.from_settings(Settings.from_environment(os.environ))
app = create_app(services)
