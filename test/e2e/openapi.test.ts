/**
 * The OpenAPI document is valid 3.1, and contains every route, status, header and example, and the
 * version of the build. `app/check-responses.ts` validates the responses of all tests against it.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { type OpenApiDocument } from '../../src/http/openapi/openapi.ts';
import { type WholeOperation, wholeOperation } from '../app/whole-operation.ts';
import { schemaCompiler } from '../app/response-checker.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';

/** Rules of OpenAPI 3.1 for the parts that the server writes; schemas are JSON Schema 2020-12. */
const SHAPE = {
  type: 'object',
  required: ['openapi', 'info', 'paths', 'components', 'x-common-headers'],
  additionalProperties: false,
  properties: {
    openapi: { const: '3.1.0' },
    info: {
      type: 'object',
      required: ['title', 'version'],
      properties: { title: { type: 'string' }, version: { type: 'string' } },
    },
    servers: { $ref: '#/$defs/servers' },
    tags: {
      type: 'array',
      items: { type: 'object', required: ['name'], properties: { name: { type: 'string' } } },
    },
    paths: {
      type: 'object',
      patternProperties: { '^/': { $ref: '#/$defs/pathItem' } },
      additionalProperties: false,
    },
    components: {
      type: 'object',
      additionalProperties: false,
      properties: {
        schemas: { type: 'object' },
        responses: { type: 'object', additionalProperties: { $ref: '#/$defs/response' } },
        parameters: { type: 'object', additionalProperties: { $ref: '#/$defs/parameter' } },
        examples: { type: 'object', additionalProperties: { $ref: '#/$defs/example' } },
        headers: { type: 'object', additionalProperties: { $ref: '#/$defs/header' } },
        securitySchemes: {
          type: 'object',
          additionalProperties: { type: 'object', required: ['type'] },
        },
      },
    },
    'x-common-headers': {
      type: 'object',
      additionalProperties: {
        type: 'object',
        required: ['description', 'headers'],
        additionalProperties: false,
        properties: { description: { type: 'string' }, headers: { $ref: '#/$defs/headers' } },
      },
    },
  },
  $defs: {
    reference: {
      type: 'object',
      required: ['$ref'],
      additionalProperties: false,
      properties: { $ref: { type: 'string' } },
    },
    headers: { type: 'object', additionalProperties: { $ref: '#/$defs/reference' } },
    example: {
      type: 'object',
      required: ['summary', 'value'],
      additionalProperties: false,
      properties: { summary: { type: 'string' }, value: {} },
    },
    servers: { type: 'array', items: { type: 'object', required: ['url'] } },
    header: {
      type: 'object',
      required: ['schema'],
      additionalProperties: false,
      properties: { description: {}, required: { type: 'boolean' }, schema: {}, example: {} },
    },
    pathItem: {
      type: 'object',
      additionalProperties: false,
      properties: {
        servers: { $ref: '#/$defs/servers' },
        get: { $ref: '#/$defs/operation' },
        head: { $ref: '#/$defs/operation' },
        post: { $ref: '#/$defs/operation' },
        put: { $ref: '#/$defs/operation' },
        patch: { $ref: '#/$defs/operation' },
        delete: { $ref: '#/$defs/operation' },
      },
    },
    operation: {
      type: 'object',
      required: ['operationId', 'responses', 'summary', 'tags'],
      additionalProperties: false,
      properties: {
        operationId: { type: 'string', pattern: '^[A-Za-z0-9]+$' },
        tags: { type: 'array', items: { type: 'string' }, minItems: 1 },
        summary: { type: 'string', minLength: 1, maxLength: 60 },
        description: { type: 'string' },
        security: { type: 'array', items: { type: 'object' } },
        parameters: {
          type: 'array',
          items: { anyOf: [{ $ref: '#/$defs/reference' }, { $ref: '#/$defs/parameter' }] },
        },
        requestBody: {
          type: 'object',
          required: ['content'],
          properties: { required: { type: 'boolean' }, content: { $ref: '#/$defs/content' } },
        },
        responses: {
          type: 'object',
          minProperties: 1,
          patternProperties: {
            '^[1-5][0-9][0-9]$': {
              anyOf: [{ $ref: '#/$defs/reference' }, { $ref: '#/$defs/response' }],
            },
          },
          additionalProperties: false,
        },
        'x-pending-payment': {
          anyOf: [{ $ref: '#/$defs/reference' }, { $ref: '#/$defs/response' }],
        },
        'x-destructive': { const: true },
      },
    },
    parameter: {
      type: 'object',
      required: ['name', 'in', 'schema'],
      additionalProperties: false,
      properties: {
        name: { type: 'string' },
        in: { enum: ['query', 'header', 'path', 'cookie'] },
        required: { type: 'boolean' },
        description: { type: 'string' },
        schema: {},
        example: {},
      },
    },
    response: {
      type: 'object',
      required: ['description'],
      additionalProperties: false,
      properties: {
        description: { type: 'string' },
        headers: { $ref: '#/$defs/headers' },
        content: { $ref: '#/$defs/content' },
      },
    },
    content: {
      type: 'object',
      minProperties: 1,
      additionalProperties: {
        type: 'object',
        required: ['schema'],
        additionalProperties: false,
        properties: {
          schema: {},
          example: {},
          examples: {
            type: 'object',
            additionalProperties: {
              anyOf: [{ $ref: '#/$defs/reference' }, { $ref: '#/$defs/example' }],
            },
          },
          'x-event-schema': {},
        },
      },
    },
  },
};

/** Without shared components the document had more than 30,000 lines. */
const MAX_BYTES_AN_OPERATION = 10_000;

const METHODS = ['get', 'head', 'post', 'put', 'patch', 'delete'] as const;

/** Every route of any configuration; no node is called for the document. */
const WITH_RAIL = `
service: { name: acme, title: Acme }
payments:
  facilitator: { expose: true }
  base: { payTo: '0x52908400098527886E0F7030069857D2E4169EE7', rpcUrl: 'http://127.0.0.1:9', gasKey: '0x${'11'.repeat(32)}' }
`;

describe('the OpenAPI document', () => {
  let farebox: TestApp;
  let document: OpenApiDocument;
  let withRail: OpenApiDocument;
  let operations: { readonly name: string; readonly path: string; readonly one: WholeOperation }[];

  before(async () => {
    farebox = await startTestApp({ yaml: 'service: { name: acme, title: Acme }' });
    const answer = await fetch(`${farebox.url}/openapi.json`);
    assert.equal(answer.status, 200);
    document = (await answer.json()) as OpenApiDocument;
    const other = await startTestApp({ yaml: WITH_RAIL });
    withRail = other.app.openApi();
    await other.stop();
    operations = Object.entries(document.paths).flatMap(([path, item]) =>
      METHODS.flatMap((method) => {
        const one = item[method];
        return one === undefined
          ? []
          : [{ name: `${method} ${path}`, path, one: wholeOperation(one, document) }];
      }),
    );
  });
  after(() => farebox.stop());

  test('is OpenAPI 3.1 whose schemas compile and whose references lead somewhere', () => {
    const ajv = new Ajv2020({ strict: false, validateFormats: false });
    const isValid = ajv.validate(SHAPE, document);
    assert.ok(isValid, JSON.stringify(ajv.errors));
    const compile = schemaCompiler(document);
    for (const [name, schema] of Object.entries(document.components.schemas)) {
      assert.equal(ajv.validateSchema(schema), true, `${name}: ${JSON.stringify(ajv.errors)}`);
      compile(schema);
    }
    for (const [, reference = ''] of JSON.stringify(document).matchAll(/"\$ref":"#([^"]+)"/g)) {
      const parts = reference.slice(1).split('/');
      const found = parts.reduce<unknown>(
        (node, part) => (node as Record<string, unknown> | undefined)?.[part],
        document,
      );
      assert.notEqual(found, undefined, reference);
    }
  });

  test('shares common parts as components', () => {
    const { paths, components } = withRail;
    const bytes = JSON.stringify(withRail).length;
    const count = Object.values(paths).flatMap((item) => Object.keys(item)).length;
    assert.ok(bytes < MAX_BYTES_AN_OPERATION * count, `${bytes} bytes for ${count} operations`);
    const said = Object.values(paths)
      .flatMap((item) => METHODS.flatMap((method) => Object.entries(item[method]?.responses ?? {})))
      .filter(([status, one]) => Number(status) >= 400 && !('$ref' in one))
      .map((one) => JSON.stringify(one));
    assert.deepEqual(
      said.filter((one, at) => said.indexOf(one) !== at),
      [],
    );
    assert.ok(Object.keys(components.responses).length > 10);
    for (const { one } of operations) {
      const [key] = (one.parameters ?? []).filter(({ name }) => name === 'Idempotency-Key');
      assert.ok(one['x-pending-payment'] === undefined || key !== undefined, one.operationId);
    }
  });

  test('has the version of the build, which every response contains', async () => {
    const { info } = document as unknown as { info: { version: string } };
    const answer = await fetch(`${farebox.url}/models`);
    assert.equal(info.version, answer.headers.get('x-acme-version'));
    assert.match(info.version, /^\d{8}\.\d{6}$/);
  });

  test('has every route of the server, and unique ids', () => {
    const ids = operations.map(({ one }) => one.operationId);
    assert.equal(new Set(ids).size, ids.length);
    const routes = farebox.app.server.routes.map(({ method, path }) => `${method} ${path}`);
    assert.equal(new Set(routes).size, routes.length);
    assert.equal(operations.length, routes.length, routes.join('\n'));
  });

  test('has valid examples of every request and response', () => {
    const compile = schemaCompiler(document);
    for (const { name, one } of operations) {
      const answers = Object.values(one.responses).map((answer) => answer.content);
      const contents = [one.requestBody?.content, ...answers].flatMap((content) =>
        Object.entries(content ?? {}),
      );
      for (const [type, { schema, example, examples }] of contents) {
        if (/^(?:text\/html|multipart\/form-data|(?:image|audio)\/.*)$/.test(type)) continue;
        const shown: unknown[] = Object.values(examples ?? {}).map((one) =>
          'value' in one ? one.value : one,
        );
        if (example !== undefined) shown.push(example);
        assert.ok(shown.length > 0, `${name} ${type} has no example`);
        const isFitting = compile(schema);
        for (const value of shown) {
          const fits = isFitting(value);
          assert.ok(fits, `${name} ${type}: ${JSON.stringify([value, isFitting.errors])}`);
        }
      }
    }
  });

  test('uses the configured service name', () => {
    const text = JSON.stringify(document);
    assert.doesNotMatch(text, /x-svc-|svc_parameters|SVC_/);
    assert.match(text, /acme_parameters/);
  });

  test('offers the wallet sign-in only if a rail is configured', () => {
    const chat = '/chat/completions';
    assert.ok('wallet' in withRail.components.securitySchemes);
    assert.deepEqual(withRail.paths[chat]?.['post']?.security, [{ apiKey: [] }, { wallet: [] }]);
    assert.ok(!('wallet' in document.components.securitySchemes));
    const schemes = operations.flatMap(({ one }) => (one.security ?? []).flatMap(Object.keys));
    assert.deepEqual([...new Set(schemes)].toSorted(), ['adminKey', 'apiKey']);
  });

  test('describes every member and parameter', () => {
    assert.ok('/x402/facilitator/settle' in withRail.paths);
    assert.deepEqual(withoutWords(withRail, ''), []);
  });

  test('excludes pending payments from the responses of priced routes', () => {
    const sold = farebox.app.server.routes.filter(({ sells }) => sells !== undefined);
    assert.ok(sold.length > 5);
    for (const { method, path } of sold) {
      const operation = document.paths[path.replaceAll(/:(\w+)/g, '{$1}')]?.[method.toLowerCase()];
      assert.ok(operation !== undefined && !('202' in operation.responses), path);
    }
    const chat = operations.find(({ name }) => name === 'post /chat/completions');
    const pending = chat?.one['x-pending-payment'];
    assert.match(JSON.stringify(pending), /"SETTLEMENT_PENDING"/);
  });

  test('lists headers for authenticated callers, and those of JSON-RPC, at their operations', () => {
    const headersOf = (path: string, method: 'get' | 'post', status: string): string[] => {
      const found = operations.find(({ name }) => name === `${method} ${path}`);
      return Object.keys(found?.one.responses[status]?.headers ?? {});
    };
    const rpc = '/crypto/rpc/{network}';
    for (const [path, method] of [
      ['/chat/completions', 'post'],
      ['/video/complete', 'post'],
      ['/billing/balance', 'get'],
      [rpc, 'post'],
    ] as const) {
      const names = headersOf(path, method, '200');
      for (const name of ['x-balance-remaining', 'x-acme-balance-diem', 'x-ratelimit-type']) {
        assert.ok(names.includes(name), `${path}: ${name}`);
      }
    }
    assert.ok(!headersOf('/models', 'get', '200').includes('x-balance-remaining'));
    assert.ok(headersOf(rpc, 'post', '200').includes('x-request-id'));
    for (const name of ['x-request-id', 'x-ratelimit-limit', 'x-ratelimit-reset']) {
      assert.ok(headersOf(rpc, 'post', '429').includes(name), name);
    }
  });

  test('has the credentials and the error codes of each route', () => {
    for (const { name, one } of operations) {
      const isPublic = one.security?.some((scheme) => Object.keys(scheme).length === 0);
      if (isPublic !== true) assert.ok('401' in one.responses, name);
      if (!name.startsWith('get '))
        assert.ok('413' in one.responses && '415' in one.responses, name);
      const unpaid = one.responses['402'];
      if (unpaid !== undefined) assert.ok('PAYMENT-REQUIRED' in (unpaid.headers ?? {}), name);
      const codes = JSON.stringify(one.responses['401'] ?? {});
      if (isPublic !== true) assert.match(codes, /\bX402_INVALID_SIGN_IN\b/, name);
    }
  });
});

/** Members of schemas, and parameters, that have no words and refer to nothing that has. */
function withoutWords(node: unknown, path: string): string[] {
  if (Array.isArray(node)) return node.flatMap((one, at) => withoutWords(one, `${path}.${at}`));
  if (typeof node !== 'object' || node === null) return [];
  const { properties, parameters, ...others } = node as {
    properties?: object;
    parameters?: object;
  };
  const named = [properties, parameters].flatMap((ones) => Object.entries(ones ?? {}));
  const bare = named.filter(([, one]) => !isDescribed(one)).map(([name]) => `${path}.${name}`);
  const rest = Object.entries(others).filter(([name]) => !NO_SCHEMAS.has(name));
  const deeper = [...named, ...rest];
  return [...bare, ...deeper.flatMap(([name, below]) => withoutWords(below, `${path}.${name}`))];
}

/** Members with values of callers, whose keys can equal keywords of a schema. */
const NO_SCHEMAS: ReadonlySet<string> = new Set([
  'example',
  'examples',
  'default',
  'enum',
  'const',
]);

function isDescribed(one: object): boolean {
  if ('$ref' in one) return true;
  return 'description' in one && typeof one.description === 'string' && one.description !== '';
}
