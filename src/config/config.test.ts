import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';

import {
  type Config,
  describeConfig,
  formatProblem,
  loadConfig,
  maxCallerMb,
  reloadConfig,
} from './config.ts';
import { diffConfig, type LoadedConfig } from './sections.ts';

const ROOT = join(import.meta.dirname, '..', '..');

async function load(
  yaml: string | undefined,
  env: Record<string, string> = {},
  files: Record<string, string> = {},
): Promise<LoadedConfig> {
  const all = new Map(Object.entries(files).map(([name, text]) => [join('/srv', name), text]));
  if (yaml !== undefined) all.set('/srv/farebox.yaml', yaml);
  return loadConfig({ env, cwd: '/srv', readFile: async (path) => all.get(path) });
}

async function loaded(
  yaml: string | undefined,
  env: Record<string, string> = {},
  files: Record<string, string> = {},
): Promise<Config> {
  const result = await load(yaml, env, files);
  assert.ok(result.ok, result.ok ? '' : result.problems.map(formatProblem).join('\n'));
  return result.config;
}

test('every setting has a default if there is no file', async () => {
  const config = await loaded(undefined);
  assert.equal(config.service.name, 'svc');
  assert.deepEqual(config.listen, { host: '127.0.0.1', port: 8402 });
  assert.equal(config.dataFolder, '/srv/data');
  assert.equal(config.databaseUrl, 'sqlite:/srv/data/farebox.db');
  assert.equal(config.publicUrl, 'http://127.0.0.1:8402');
  assert.deepEqual(config.models, []);
  assert.equal(config.limits.minimumCreditUsd, '0.10');
});

test('the default limits equal the tables of the specification', async () => {
  const { plans, guard, walletConcurrency } = (await loaded('')).limits;
  const text = (plan: keyof typeof plans) =>
    Object.values(plans[plan].text).map((l) => [l.requestsPerMinute, l.tokensPerMinute]);
  assert.deepEqual(text('paid'), [
    [500, 1_000_000],
    [75, 750_000],
    [50, 750_000],
    [20, 500_000],
  ]);
  assert.deepEqual(text('partner'), [
    [500, 2_000_000],
    [150, 1_500_000],
    [100, 1_500_000],
    [60, 1_000_000],
  ]);
  const { text: _, ...other } = plans.paid;
  assert.deepEqual(other, {
    image: 20,
    audio: 60,
    embedding: 500,
    videoQueue: 40,
    videoRetrieve: 120,
  });
  assert.deepEqual([plans.partner.image, plans.partner.audio], [60, 120]);
  assert.deepEqual(guard, { failures: 20, windowSeconds: 30, blockSeconds: 30 });
  assert.equal(walletConcurrency, 5);
});

test('environment variables take precedence over the file', async () => {
  const config = await loaded('listen: { host: 10.0.0.1, port: 1 }\ndata: store\n', {
    PORT: '9000',
    HOST: '0.0.0.0',
    FAREBOX_DATA: 'elsewhere',
  });
  assert.deepEqual(config.listen, { host: '0.0.0.0', port: 9000 });
  assert.equal(config.dataFolder, '/srv/elsewhere');
  assert.equal(config.databaseUrl, 'sqlite:/srv/elsewhere/farebox.db');
  assert.equal(config.publicUrl, 'http://127.0.0.1:9000');
});

test('`FAREBOX_CONFIG` names another file, and relative paths start at its folder', async () => {
  const config = await loaded(
    undefined,
    { FAREBOX_CONFIG: 'etc/other.yaml' },
    { 'etc/other.yaml': 'data: ./x\ndatabase: sqlite:./x/money.db\n' },
  );
  assert.equal(config.dataFolder, '/srv/etc/x');
  assert.equal(config.databaseUrl, 'sqlite:/srv/etc/x/money.db');
});

test('environment variables are replaced anywhere in a text, also inside { }', async () => {
  const yaml = [
    'listen: { port: ${MY_PORT} }',
    'metrics: { enabled: ${METRICS:-false} }',
    'engines:',
    '  a: { url: http://${ENGINE:-10.0.0.5:8000}/v1/, apiKey: ${KEY}, headers: { x: "a ${KEY} b" } }',
    'service: { systemPrompt: "Keep $${KEY} as it is" }',
    '# ${NOT_SET} in a comment is nothing',
  ].join('\n');
  const config = await loaded(yaml, { MY_PORT: '81', KEY: 'k,{}:#1' });
  assert.equal(config.listen.port, 81);
  assert.equal(config.metrics.enabled, false);
  assert.equal(config.engines['a']?.url, 'http://10.0.0.5:8000/v1');
  assert.equal(config.engines['a']?.apiKey, 'k,{}:#1');
  assert.equal(config.engines['a']?.headers['x'], 'a k,{}:#1 b');
  assert.equal(config.service.systemPrompt, 'Keep ${KEY} as it is');
});

test('prices keep their digits', async () => {
  const yaml = `models:
  - { id: a, context: 10, price: { input: 0.1, output: "0.123456789", cacheInput: 6.25e-7, perRequest: 1e-9 } }
`;
  const config = await loaded(yaml);
  const price = config.models[0]?.price;
  assert.equal(price?.input, '0.1');
  assert.equal(price?.output, '0.123456789');
  assert.equal(price?.cacheInput, '6.25e-7');
  const long = await load(yaml.replace('input: 0.1,', 'input: 0.10000000000000000001,'));
  assert.equal(long.ok, false);
});

test('an empty section has the same value as a missing one', async () => {
  const config = await loaded('models:\npayments:\nlimits:\n  plans:\n');
  assert.deepEqual(config.models, []);
  assert.equal(config.limits.plans.paid.image, 20);
});

const SAME_STEPS = '[{ above: 4, input: 2, output: 2 }, { above: 4, input: 3, output: 3 }]';
const TEXT_MODEL = 'context: 8, price: { input: 1, output: 1 }';

/** Invalid files, each with its exact messages. */
const BROKEN: readonly (readonly [name: string, yaml: string, problems: readonly string[]])[] = [
  [
    'an unknown section',
    'engins: {}\n',
    ['farebox.yaml:1:1: engins: Unknown key "engins"; did you mean "engines"?'],
  ],
  [
    'an unknown key with no likeness',
    'listen:\n  host: 127.0.0.1\n  zzz: 1\n',
    ['farebox.yaml:3:3: listen.zzz: Unknown key "zzz". Allowed: host, port'],
  ],
  [
    'a database in memory',
    'database: "sqlite::memory:"\n',
    [
      'farebox.yaml:1:11: database: Must be sqlite:<file> or postgres://…, and not in memory, because charges must be on a disk',
    ],
  ],
  [
    'a value out of range',
    'listen: { port: 70000 }\n',
    ['farebox.yaml:1:17: listen.port: Must be at most 65535, not 70000'],
  ],
  [
    'a text where a number is wanted',
    'listen:\n  port: many\n',
    ['farebox.yaml:2:9: listen.port: Must be a whole number, not "many"'],
  ],
  [
    'a word that is not allowed',
    `models:\n  - { id: a, type: txet, ${TEXT_MODEL} }\n`,
    [
      'farebox.yaml:2:20: models[0].type: "txet" is not allowed; did you mean "text"? Allowed: asr, embedding, image, music, text, tts, upscale, inpaint, video, rerank, moderation',
    ],
  ],
  [
    'a price of RPC credits that is finer than the unit of the ledger',
    'rpc: { usdPerCredit: 6.25e-10 }\n',
    [
      'farebox.yaml:1:22: rpc.usdPerCredit: Must be an amount of USD, zero or more, with at most 9 decimals, for example 0.30',
    ],
  ],
  [
    'several mistakes, in the order of the file',
    'service: { name: My-API }\nmodels:\n  - id: a\n    contxt: 8\n    price: { input: -1, output: 1 }\n    traits: default\n',
    [
      'farebox.yaml:1:18: service.name: Must be 1 to 20 lowercase letters or digits and start with a letter',
      'farebox.yaml:4:5: models[0].contxt: Unknown key "contxt"; did you mean "context"?',
      'farebox.yaml:5:21: models[0].price.input: Must be an amount of USD, zero or more, with at most 9 decimals, for example 0.30',
      'farebox.yaml:6:13: models[0].traits: Must be a list, not "default"',
    ],
  ],
  [
    'a missing key',
    'models:\n  - type: text\n',
    ['farebox.yaml:2:5: models[0].id: The key "id" is missing: Id of the model in requests'],
  ],
  [
    'a model without a price',
    'models:\n  - id: a\n    context: 8\n',
    [
      'farebox.yaml:2:5: models[0]: The model "a" has no "price"; for a free model write price: { input: 0, output: 0 }',
    ],
  ],
  [
    'empty settings, which would turn a protection off',
    'backup:\n  recipient:\nmetrics: { token: , enabled: ~ }\nsignIn:\n  providers:\n    - { id: a, label: A, issuer: https://a.example, clientId: x, rules: [{ domains: , groups: [b] }] }\n',
    [
      'farebox.yaml:2:3: backup.recipient: The key has no value; write one, or remove the key',
      'farebox.yaml:3:12: metrics.token: The key has no value; write one, or remove the key',
      'farebox.yaml:3:21: metrics.enabled: The key has no value; write one, or remove the key',
      'farebox.yaml:6:76: signIn.providers[0].rules[0].domains: The key has no value; write one, or remove the key',
    ],
  ],
  [
    'a price without its output',
    'models:\n  - id: a\n    context: 8\n    price: { input: 1 }\n',
    ['farebox.yaml:4:12: models[0].price: The price of this type of model needs "output"'],
  ],
  [
    'a text model without a context',
    'models:\n  - id: a\n    price: { input: 1, output: 1 }\n',
    [
      'farebox.yaml:2:5: models[0]: The text model "a" needs "context", the context length in tokens',
    ],
  ],
  [
    'an output cap above the context',
    `models:\n  - { id: a, maxCompletionTokens: 9, ${TEXT_MODEL} }\n`,
    [
      'farebox.yaml:2:35: models[0].maxCompletionTokens: Must be at most the context of 8 tokens, not 9',
    ],
  ],
  [
    'a replica on no engine',
    `engines:\n  rack1: { url: http://127.0.0.1/v1 }\nmodels:\n  - id: a\n    context: 8\n    price: { input: 1, output: 1 }\n    replicas: [{ engine: rack2 }]\n`,
    [
      'farebox.yaml:7:26: models[0].replicas[0].engine: There is no engine "rack2"; did you mean "rack1"? Engines: rack1',
    ],
  ],
  [
    'the same id twice',
    `models:\n  - { id: a, ${TEXT_MODEL} }\n  - { id: a, ${TEXT_MODEL} }\n`,
    ['farebox.yaml:3:11: models[1].id: models[0] also has this id'],
  ],
  [
    'an alias that is an id',
    `models:\n  - { id: a, ${TEXT_MODEL} }\n  - { id: b, aliases: [a], ${TEXT_MODEL} }\n`,
    ['farebox.yaml:3:24: models[1].aliases[0]: models[0] also has the id or alias "a"'],
  ],
  [
    'one trait on two models',
    `models:\n  - { id: a, traits: [default], ${TEXT_MODEL} }\n  - { id: b, traits: [default], ${TEXT_MODEL} }\n`,
    ['farebox.yaml:3:23: models[1].traits[0]: "a" also has the trait "default"'],
  ],
  [
    'a replacement that does not exist',
    `models:\n  - { id: alpha, ${TEXT_MODEL} }\n  - { id: b, deprecation: { date: 2027-01-01, replacement: alhpa }, ${TEXT_MODEL} }\n`,
    [
      'farebox.yaml:3:60: models[1].deprecation.replacement: There is no model "alhpa"; did you mean "alpha"?',
    ],
  ],
  [
    'fallbacks that do not exist, repeat, protect less, or lead back',
    `models:
  - { id: a, fallbacks: [a, alhpa, alpha, alpha], ${TEXT_MODEL} }
  - { id: alpha, fallbacks: [b], ${TEXT_MODEL} }
  - { id: b, fallbacks: [a, open, vectors], ${TEXT_MODEL} }
  - { id: open, privacy: anonymized, ${TEXT_MODEL} }
  - { id: vectors, type: embedding, fallbacks: [longer], embedding: { dimensions: 4 }, price: { input: 1 } }
  - { id: longer, type: embedding, embedding: { dimensions: 8 }, price: { input: 1 } }
  - { id: voice, type: tts, fallbacks: [b], price: { perMillionCharacters: 1 } }
`,
    [
      'farebox.yaml:2:26: models[0].fallbacks[0]: A model cannot be its own fallback',
      'farebox.yaml:2:29: models[0].fallbacks[1]: There is no model "alhpa"; did you mean "alpha"?',
      'farebox.yaml:2:36: models[0].fallbacks[2]: The fallbacks of "alpha" lead back to "a"',
      'farebox.yaml:2:43: models[0].fallbacks[3]: "alpha" is already in the list',
      'farebox.yaml:3:30: models[1].fallbacks[0]: The fallbacks of "b" lead back to "alpha"',
      'farebox.yaml:4:26: models[2].fallbacks[0]: The fallbacks of "a" lead back to "b"',
      'farebox.yaml:4:29: models[2].fallbacks[1]: "open" is not private, unlike "b"',
      'farebox.yaml:4:35: models[2].fallbacks[2]: "vectors" is of type embedding, not text',
      'farebox.yaml:6:49: models[4].fallbacks[0]: The vectors of "longer" have other dimensions than those of "vectors"',
      'farebox.yaml:8:40: models[6].fallbacks: Only models of type text, embedding, image, rerank can have fallbacks',
    ],
  ],
  [
    'a date that is none',
    `models:\n  - { id: b, deprecation: { date: tomorrow }, ${TEXT_MODEL} }\n`,
    [
      'farebox.yaml:2:35: models[0].deprecation.date: Must be a date such as 2026-11-01 or a UTC time such as 2026-11-01T12:00:00Z',
    ],
  ],
  [
    'a variable that is not set',
    'engines:\n  a:\n    url: http://127.0.0.1/v1\n    apiKey: ${NOT_THERE}\n',
    [
      'farebox.yaml:4:13: engines.a.apiKey: The environment variable NOT_THERE is not set; set it, or write ${NOT_THERE:-default}',
    ],
  ],
  [
    'a variable with an impossible name',
    'data: ${my-data}\n',
    [
      'farebox.yaml:1:7: data: "${my-data}" is not a variable; write ${NAME} or ${NAME:-default}, or $${ for a literal ${',
    ],
  ],
  [
    'a secret that YAML takes for a number, without repeating it',
    'engines:\n  a: { url: http://127.0.0.1/v1, apiKey: 123456 }\n',
    [
      'farebox.yaml:2:42: engines.a.apiKey: Must be a text, not the given value; write it in quotes',
    ],
  ],
  [
    'a value of the environment that an alias puts elsewhere, without repeating it',
    'engines:\n  a: { url: http://127.0.0.1/v1, apiKey: &key "${AGENT_KEY:-hunter2}" }\nlog: { level: *key }\n',
    [
      'farebox.yaml:3:15: log.level: the given value is not allowed. Allowed: debug, info, warn, error, silent',
    ],
  ],
  [
    'an address that is no URL',
    'engines:\n  a: { url: 127.0.0.1:8000 }\n',
    [
      'farebox.yaml:2:13: engines.a.url: Must be an absolute http:// or https:// URL, or unix:/path.sock:/v1',
    ],
  ],
  [
    'an address with credentials, without repeating them',
    'engines:\n  a: { url: "http://u:hunter2@127.0.0.1/v1" }\n',
    [
      'farebox.yaml:2:13: engines.a.url: Must not contain a user name or a password; use "apiKey" or "headers" for credentials',
    ],
  ],
  [
    'an address with a query, without repeating it',
    'tracing: { endpoint: "http://127.0.0.1:4318/?key=hunter2" }\n',
    ['farebox.yaml:1:22: tracing.endpoint: Must not contain a query, because paths are appended'],
  ],
  [
    'an engine name with capitals',
    'engines:\n  Rack1: { url: http://127.0.0.1/v1 }\n',
    [
      'farebox.yaml:2:3: engines.Rack1: Must be 1 to 40 lowercase letters, digits and dashes, and not start with a dash',
    ],
  ],
  [
    'a variable that a formatter tore apart',
    'engines:\n  a: { url: http://127.0.0.1/v1, apiKey: $, { KEY } }\n',
    ['farebox.yaml:2:45: engines.a: A key must be a text; inside { } write "${NAME}" in quotes'],
  ],
  [
    'a list where keys are wanted',
    'limits: [1]\n',
    ['farebox.yaml:1:9: limits: Must be a group of keys, not a list'],
  ],
  [
    'a file that is a list',
    '- a\n- b\n',
    ['farebox.yaml:1:1: Must be a group of keys, not a list'],
  ],
  [
    'a file that is one text',
    'hello\n',
    ['farebox.yaml:1:1: Must be a group of keys, not "hello"'],
  ],
  [
    'a key that stands twice',
    'data: a\ndata: b\n',
    ['farebox.yaml:2:1: The key is duplicated; remove one (Map keys must be unique)'],
  ],
  [
    'a bracket that is not closed',
    'listen: { port: 1\ndata: x\n',
    [
      'farebox.yaml:2:1: A bracket is not closed, or the indentation does not fit the lines above (Flow map in block collection must be sufficiently indented and end with a })',
    ],
  ],
  [
    'tabs',
    'listen:\n\tport: 1\n',
    ['farebox.yaml:2:1: Tabs cannot indent YAML; use spaces (Tabs are not allowed as indentation)'],
  ],
  [
    'models whose prices are not of their kind',
    'models:\n  - { id: a, type: tts, price: { input: 1 } }\n  - { id: b, type: rerank, price: {} }\n',
    [
      'farebox.yaml:2:32: models[0].price: The price of this type of model needs "perMillionCharacters"',
      'farebox.yaml:3:35: models[1].price: The price of this type of model needs "perSearch" or "input"',
    ],
  ],
  [
    'two steps of long prompts with the same threshold',
    `plans:
  pro: { prices: { models: { a: { price: { input: 1, output: 1, extended: ${SAME_STEPS} } } } } }
models:
  - { id: a, context: 8, price: { input: 1, output: 1, extended: ${SAME_STEPS} } }
  - { id: b, context: 8, price: { input: 1, output: 1, serviceTiers: { flex: { extended: ${SAME_STEPS} } } } }
  - { id: c, context: 8, price: { input: 1, output: 1, windows: [{ from: "10:00", to: "12:00", extended: ${SAME_STEPS} }] } }
`,
    [
      '2:120: plans.pro.prices.models.a.price',
      '4:111: models[0].price',
      '5:135: models[1].price.serviceTiers.flex',
      '6:151: models[2].price.windows[0]',
    ].map((place) => {
      return `farebox.yaml:${place}.extended[1].above: Another step has this threshold`;
    }),
  ],
  [
    'two rules of a list for the same amount or size',
    `payments: { networks: [{ network: "eip155:8453", payTo: "0x0000000000000000000000000000000000000001", rpcUrl: "http://127.0.0.1", confirmations: [{ fromUsd: 0, wait: 1 }, { fromUsd: 0, wait: safe }] }] }
models:
  - { id: up, type: video, video: { task: upscale, pricing: { kind: upscale, tiers: [{ maxHeight: 720, perSecond: 0.1 }, { maxHeight: 720, perSecond: 0.2 }] } } }
`,
    [
      'farebox.yaml:1:183: payments.networks[0].confirmations[1].fromUsd: Another rule has this amount',
      'farebox.yaml:3:135: models[0].video.pricing.tiers[1].maxHeight: Another tier has this height',
    ],
  ],
  [
    'an import without a price file',
    'models:\n  - { id: a, import: b }\n',
    ['farebox.yaml:2:22: models[0].import: There is no price file to import from; set "priceFile"'],
  ],
  [
    'a price file that is not there',
    'priceFile: ./nope.json\n',
    [
      'farebox.yaml:1:12: priceFile: There is no file /srv/nope.json; write the path of a price file',
    ],
  ],
];

for (const [name, yaml, expected] of BROKEN) {
  test(`an invalid file is reported with its position: ${name}`, async () => {
    const result = await load(yaml);
    assert.ok(!result.ok);
    assert.deepEqual(result.problems.map(formatProblem), expected);
  });
}

test('an invalid environment variable is reported', async () => {
  const result = await load(undefined, { PORT: '8402x' });
  assert.ok(!result.ok);
  assert.deepEqual(result.problems.map(formatProblem), [
    'environment: PORT: PORT must be a whole number from 0 to 65535, not "8402x"',
  ]);
  const missing = await load(undefined, { FAREBOX_CONFIG: 'no.yaml' });
  assert.ok(!missing.ok);
  assert.match(
    formatProblem(missing.problems[0]!),
    /^no\.yaml: The file that --config or FAREBOX_CONFIG names does not exist/,
  );
});

test('a file with exponentially many aliases is rejected', async () => {
  const lines = ['a: &a [x, x, x, x, x, x, x, x, x, x]'];
  for (let step = 1; step < 12; step += 1) {
    const from = step === 1 ? 'a' : `a${step - 1}`;
    lines.push(`b${step}: &a${step} [${Array.from({ length: 10 }, () => `*${from}`).join(', ')}]`);
  }
  const result = await load(lines.join('\n'));
  assert.ok(!result.ok);
  assert.deepEqual(result.problems.map(formatProblem), [
    'farebox.yaml:1:1: The file must use at most 1,000 aliases (*name)',
  ]);
});

test('the example configuration is valid', async () => {
  const folder = join(ROOT, 'examples');
  const result = await loadConfig({ env: {}, cwd: folder });
  assert.ok(result.ok, result.ok ? '' : result.problems.map(formatProblem).join('\n'));
  assert.deepEqual(result.warnings, []);
  const read = result.sources.map(({ path }) => path);
  assert.deepEqual(read, [join(folder, 'farebox.yaml'), join(folder, 'prices.json')]);
  const frontier = result.config.models.find((model) => model.id === 'frontier-1');
  assert.equal(frontier?.price?.cacheWrite, '7.5');
  assert.equal(frontier?.context, 1_000_000);
});

test('`reloadConfig` returns the same result as `loadConfig`', async () => {
  const folder = join(ROOT, 'examples');
  const inputs = { env: { PORT: '9' }, cwd: folder };
  assert.deepEqual(await reloadConfig(inputs), await loadConfig(inputs));
  const broken = await reloadConfig({ env: { FAREBOX_CONFIG: 'none.yaml' }, cwd: folder });
  assert.equal(broken.ok, false);
});

test('an engine without a model causes a warning', async () => {
  const result = await load('engines:\n  a: { url: http://127.0.0.1/v1 }\n');
  assert.ok(result.ok);
  assert.deepEqual(result.warnings.map(formatProblem), [
    'farebox.yaml:2:6: engines.a: No model has a replica on this engine',
  ]);
});

test('too little storage for the open jobs of a caller causes a warning', async () => {
  const room = async (text: string) => {
    const result = await load(text);
    assert.ok(result.ok);
    const { media, video } = result.config;
    const warnings = result.warnings.map(formatProblem);
    return { mb: maxCallerMb(media, video.maxOpenJobs), warnings };
  };
  assert.deepEqual(await room(''), { mb: 5_000, warnings: [] });
  assert.deepEqual(await room('video: { maxOpenJobs: 40 }\n'), { mb: 10_000, warnings: [] });
  const low =
    'media: { maxStoredMbPerCaller: 5000, maxStoredMb: 6000 }\nvideo: { maxOpenJobs: 40 }\n';
  assert.deepEqual(await room(low), {
    mb: 5_000,
    warnings: [
      'farebox.yaml:2:23: video.maxOpenJobs: media.maxStoredMbPerCaller is enough for 25 open jobs of 200 MB each: set it to 8000 or more, or lower this',
      'farebox.yaml:2:23: video.maxOpenJobs: media.maxStoredMb is enough for 30 open jobs of 200 MB each: set it to 8000 or more, or lower this',
    ],
  });
});

test('`describeConfig` masks all secrets', async () => {
  const config = await loaded(
    [
      'database: postgres://farebox:hunter2@db/farebox',
      'cluster: { directDatabase: "postgres://farebox:hunter9@db1:5432,db2:5432/farebox" }',
      'engines:',
      '  a: { url: https://h.example/v1, apiKey: hunter5, headers: { x-any: hunter6 } }',
      'metrics: { token: hunter7 }',
      'tracing: { endpoint: https://t.example, headers: { authorization: hunter8 } }',
      'embedded: { proxy: "http://u:hunter3@p.example/?k=hunter4" }',
      'rpc: { networks: { ethereum-mainnet: { upstreams: [{ url: "https://node.example/v2/hunter9", headers: { x-any: hunter10 } }] } } }',
    ].join('\n'),
  );
  const text = describeConfig(config);
  assert.doesNotMatch(text, /hunter/);
  assert.match(text, /postgres:\/\/farebox:\*+@db\/farebox/);
  assert.match(text, /https:\/\/node\.example\/\*+/);
  assert.match(text, /postgres:\/\/farebox:\*+@db1:5432,db2:5432\/farebox/);
});

test('`diffConfig` returns the changed sections and those that need a restart', async () => {
  const before = await loaded('');
  const after = await loaded(
    `limits: { walletConcurrency: 6 }\nlisten: { port: 1 }\ndata: ./other\nmodels:\n  - { id: a, ${TEXT_MODEL} }\n`,
  );
  assert.deepEqual(diffConfig(before, before), { changed: [], restart: [] });
  assert.deepEqual(diffConfig(before, after), {
    changed: ['listen', 'database', 'data', 'models', 'limits'],
    restart: ['listen', 'database', 'data'],
  });
});
