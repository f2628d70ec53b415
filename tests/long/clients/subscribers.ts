// A client in TypeScript, with the types that openapi-typescript makes of the document.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

const [baseUrl, username, password] = process.argv.slice(2) as [string, string, string];
const api = createClient<paths>({ baseUrl });
const said: Record<string, unknown> = {};

const login = await api.POST("/api/v1/auth/login", { body: { username, password } });
if (login.error) throw new Error("no token");
const headers = { Authorization: `Bearer ${login.data.access_token}` };

const list = await api.GET("/api/v1/subscribers", { headers, params: { query: { limit: 2, sort: "-id" } } });
if (list.error) throw new Error(JSON.stringify(list.error));
const sessions: components["schemas"]["SessionSummary"][] = list.data.data.sessions;
said.ids = sessions.map((session) => session.id);

const path = { id: sessions[0]!.id };
const one = await api.GET("/api/v1/subscribers/{id}", { headers, params: { path } });
if (one.error) throw new Error(JSON.stringify(one.error));
const gateway: string | null = one.data.data.gateway;
said.gateway = gateway;
said.username = one.data.data.username;

const changed = await api.PUT("/api/v1/subscribers/{id}/rate", {
    headers, params: { path }, body: { rate_down: "250 Mbit", rate_up: "50mbps" },
});
if (changed.error) throw new Error(JSON.stringify(changed.error));
said.rate_down_bps = changed.data.data.rate_down_bps satisfies number;

const refused = await api.PUT("/api/v1/subscribers/{id}/rate", {
    headers, params: { path }, body: { rate_down: "fast", rate_up: "50mbps" },
});
if (refused.error && "errors" in refused.error) said.problems = refused.error.errors?.map((problem) => problem.path);

process.stdout.write(JSON.stringify(said));
