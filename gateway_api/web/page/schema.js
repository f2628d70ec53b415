// Help for the paths of the configuration, from the OpenAPI document.

const SEGMENT = /"[^"]*"|[^.]+/g;

export class Schema {
  #api;
  #schemas = null;

  constructor(api) {
    this.#api = api;
  }

  /** What is known of a path, as sentences; empty for nothing. */
  async help(path) {
    this.#schemas ??= (await this.#api.document('openapi.json')).components.schemas;
    let schema = this.#schemas.Configuration, example, found = '';
    for (const segment of path.match(SEGMENT) ?? []) {
      example = example?.[segment];
      schema = this.#resolved(schema?.properties?.[segment] ?? schema?.items);
      if (schema?.description) found = schema.description;
      example = schema?.examples?.[0] ?? example;
    }
    if (!found) return '';
    return example === undefined || example === null ? found : `${found} Example: ${text(example)}`;
  }

  #resolved(schema) {
    const name = schema?.$ref?.split('/').at(-1);
    return name ? {...this.#schemas[name], ...schema} : schema;
  }
}

const text = value => (typeof value === 'string' ? value : JSON.stringify(value));
