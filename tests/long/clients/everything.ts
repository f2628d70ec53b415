// A client in TypeScript, with the package that the generator typescript-fetch makes of the document. It reads all that can be
// read, changes a rate and commits a change.

import {readFileSync} from 'node:fs';
import * as gateway from './gateway';

const [url, username, password] = process.argv.slice(2) as [string, string, string];
const task = JSON.parse(readFileSync(0, 'utf8')) as {
  reads: [string, string][], names: Record<string, string | number> & {id: number}, rate: string,
};

const camel = (name: string) => name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());

async function main() {
  const login = await new gateway.LoginApi(new gateway.Configuration({basePath: url}))
    .loginLogIn({loginRequest: {username, password}});
  const configuration = new gateway.Configuration({basePath: url, accessToken: login.access_token});
  const apis = gateway as unknown as Record<string, new (configuration: gateway.Configuration) => Record<string, (names: object) => Promise<unknown>>>;
  for (const [operation, tag] of task.reads) {
    const api = new apis[`${tag[0]!.toUpperCase()}${tag.slice(1)}Api`]!(configuration);
    // The names of paths alone: `id` is a filter elsewhere.
    const required = operation.match(/_(show|timeline|archived|deliveries)$/) ? task.names : {};
    await api[camel(operation)]!(required);
  }
  const changed = await new gateway.SubscribersApi(configuration)
    .subscribersChangeRate({id: task.names.id, rateChange: {rate_down: '250 Mbit', rate_up: '50mbps'}});
  const editor = new gateway.ConfigurationApi(configuration);
  await editor.configurationSetValue({setValue: {path: 'qos.default_down', value: task.rate}});
  const committed = await editor.configurationCommit();
  process.stdout.write(JSON.stringify({rate_down_bps: changed.data.rate_down_bps, committed: committed.data.committed}));
}

void main();
