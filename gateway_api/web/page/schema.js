// Help for the paths of the configuration, from the OpenAPI document.

const SEGMENT = /"[^"]*"|[^.]+/g;
const KINDS = {string: 'Text', integer: 'Whole number', boolean: 'true or false', array: 'List, as JSON', object: 'Section'};
const NONE = {meaning: '', kind: ''};

export class Schema {
  #api;
  #schemas = null;

  constructor(api) {
    this.#api = api;
  }

  /** What a path means, and which values it takes, as sentences; empty for an unknown path. */
  async help(path) {
    this.#schemas ??= (await this.#api.document('openapi.json')).components.schemas;
    let schema = this.#schemas.Configuration;
    for (const segment of path.match(SEGMENT) ?? []) schema = this.#resolved(schema?.properties?.[segment] ?? schema?.items);
    return schema ? {meaning: meaning(schema), kind: kind(schema)} : NONE;
  }

  /** A schema with what it refers to. `nullable` tells whether null is a value, too. */
  #resolved(schema) {
    const choice = schema?.anyOf?.find(({type}) => type !== 'null');
    const name = (choice ?? schema)?.$ref?.split('/').at(-1);
    return schema && {...this.#schemas[name], ...choice, ...schema, nullable: choice !== undefined};
  }
}

function meaning({description = '', examples: [example] = []}) {
  return example === undefined || example === null ? description : `${description} Example: ${text(example)}`;
}

function kind({type, enum: choices, minimum, maximum, maxItems: most, nullable}) {
  const name = choices ? `One of ${choices.join(', ')}` : KINDS[type];
  const range = minimum === undefined ? '' : `, ${minimum} to ${maximum}`;
  return `${name}${range}${most ? `, at most ${most} items` : ''}${nullable ? ', or null' : ''}.`;
}

const text = value => (typeof value === 'string' ? value : JSON.stringify(value));
