// The state of the parts of the gateway.

import {Refused, Unreachable} from './api.js';
import {byId, stateRow} from './elements.js';
import {count, duration} from './format.js';
import {Poll} from './poll.js';

const SECONDS = 10;

export class Health {
  constructor(api) {
    this.api = api;
    new Poll(SECONDS, () => this.#read(), ['overview']);
  }

  async #read() {
    const rows = await Promise.all([
      this.#row('API', async () => {
        const began = performance.now();
        const {version} = await this.api.poll('/system/version');
        return `responds in ${Math.round(performance.now() - began)} ms, version ${version}`;
      }),
      this.#row('Core daemon', async () => {
        const {uptime_seconds: seconds} = await this.api.poll('/system/health');
        return `up for ${duration(seconds)}`;
      }),
      this.#row('CGNAT', async () => {
        const stats = await this.api.poll('/cgnat/stats');
        return `${count(stats.vrf_steered_sessions)} steered, ${count(stats.public_ip_sessions)} public`;
      }),
      this.#row('Demux', async () => {
        const {rate_limited_total: refused} = await this.api.poll('/demux/state', {limit: 1});
        return `${refused ? count(refused) : 'no'} VLANs refused`;
      }),
      this.#row('Webhooks', async () => {
        const {count: number} = await this.api.poll('/webhooks');
        return number ? `${count(number)} registered` : 'none registered';
      }),
    ]);
    byId('health').replaceChildren(...rows);
  }

  async #row(name, read) {
    try {
      return stateRow(name, true, await read());
    } catch (error) {
      if (!(error instanceof Refused || error instanceof Unreachable)) throw error;
      return stateRow(name, false, error.message);
    }
  }
}
