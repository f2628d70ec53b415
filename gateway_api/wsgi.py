"""What gunicorn serves: `gateway_api.wsgi:app`."""

import os

from gateway_api.app import create_app
from gateway_api.services import Services
from gateway_api.settings import Settings

services = Services.from_settings(Settings.from_environment(os.environ))
app = create_app(services)
