// The reference page, and a login. Swagger UI sends the token with each operation; only this page has it.
"use strict";

const login = document.getElementById("login");
const logout = document.getElementById("logout");
const api = new URL(".", location.href).pathname;
let token = null;

// The class is Swagger UI's.
const dark = matchMedia("(prefers-color-scheme: dark)");
const dim = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", dim);
dim();

// Swagger UI shows a response at its end, and an event stream has none.
const streamsAreReadOnly = () => ({
    statePlugins: {
        spec: {
            wrapSelectors: {
                allowTryItOutFor: (original, system) => (state, path, method) =>
                    !system.specSelectors.specJson()
                        .getIn(["paths", path, method, "responses", "200", "content", "text/event-stream"]),
            },
        },
    },
});

// Swagger UI's own dialog would be a second way to log in.
const oneLogin = () => ({
    wrapComponents: { authorizeBtn: () => () => null, authorizeOperationBtn: () => () => null },
});

// A browser needs minutes for the layout of 100,000 records, and is blocked meanwhile.
const SHOWN = 100;

const shortened = (response) => {
    const data = response.obj?.data ?? {};
    const long = Object.keys(data).filter((name) => Array.isArray(data[name]) && data[name].length > SHOWN);
    if (!long.length) return response;
    const notes = long.map((name) => `This page shows the first ${SHOWN} of ${data[name].length} ${name}.`);
    const beginnings = long.map((name) => [name, data[name].slice(0, SHOWN)]);
    response.obj = response.body = { note: notes.join(" "), ...response.obj, data: { ...data, ...Object.fromEntries(beginnings) } };
    offer(response.text);
    response.text = response.data = JSON.stringify(response.obj);
    return response;
};

// The whole of a response that is shown in part, as a file.
const whole = document.getElementById("whole");

function offer(text) {
    const file = new Blob([text], { type: "application/json" });
    const link = whole.querySelector("a");
    URL.revokeObjectURL(link.href);
    link.href = URL.createObjectURL(file);
    link.textContent = `Download the whole response, ${(file.size / 1e6).toFixed(1)} MB`;
    whole.hidden = false;
}

const reference = SwaggerUIBundle({
    dom_id: "#reference",
    url: `${api}openapi.json`,
    plugins: [streamsAreReadOnly, oneLogin],
    deepLinking: true,
    docExpansion: "list",
    defaultModelsExpandDepth: 0,
    filter: true,
    tryItOutEnabled: true,
    validatorUrl: null,
    responseInterceptor: shortened,
    onComplete: () => { login.querySelector("button").disabled = false; },
});

function show(form, text) {
    login.hidden = form !== login;
    logout.hidden = form !== logout;
    form.querySelector("output").textContent = text;
}

login.addEventListener("submit", async (event) => {
    event.preventDefault();
    const credentials = Object.fromEntries(new FormData(login));
    try {
        const response = await fetch(`${api}auth/login`, { method: "POST", body: JSON.stringify(credentials) });
        const reply = await response.json();
        if (!response.ok) throw new Error(reply.detail ?? reply.message);
        token = reply.access_token;
        reference.preauthorizeApiKey("bearer", token);
        login.reset();
        show(logout, `Logged in as ${credentials.username}`);
    } catch (error) {
        show(login, error.message);
    }
});

logout.addEventListener("submit", async (event) => {
    event.preventDefault();
    const headers = { Authorization: `Bearer ${token}` };
    try {
        const response = await fetch(`${api}auth/logout`, { method: "POST", headers });
        // 401: the token has expired or is revoked already.
        if (!response.ok && response.status !== 401) throw new Error(`The gateway responded with ${response.status}.`);
        reference.authActions.logout(["bearer"]);
        token = null;
        show(login, "Logged out");
    } catch (error) {
        show(logout, `Not logged out: ${error.message}`);
    }
});
