/**
 * Clients that generators make of a server's own OpenAPI document: they compile as they are under
 * `tsc --strict`, and each pays for a chat with that server.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { pathToFileURL } from 'node:url';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { TestUpstream } from '../support/test-upstream.ts';

const run = promisify(execFile);

const ROOT = join(import.meta.dirname, '../..');
const PACKAGES = join(ROOT, 'test/node_modules');
const TSC = join(ROOT, 'node_modules/typescript/bin/tsc');
const GENERATOR_LIMIT_MS = 120_000;

/** Exports of a program that uses a generated client. */
interface ChatProgram {
  readonly chat: (url: string, secret: string) => Promise<{ text: string | null; usd: number }>;
}

const BODY = `{ model: 'default', messages: [{ role: 'user', content: 'Hello' }] }`;

/** The program of the documents, whose environment the types of Node are not needed for. */
const DOCUMENTED = readFileSync(join(ROOT, 'docs/callers/generated-clients.md'), 'utf8');
const EXAMPLE = `declare const process: { env: Record<string, string | undefined> };
${/```ts\n(.*?)```/s.exec(DOCUMENTED)?.[1]}`;

/** Each generator: its own command with its usual options, and a program with what it makes. */
const GENERATORS = {
  'openapi-typescript': {
    command: ['openapi-typescript/bin/cli.js', 'document.json', '-o', 'schema.ts'],
    files: { 'example.ts': EXAMPLE },
    program: `import createClient from "openapi-fetch";
import type { components, paths } from "./schema.ts";

export const tree: components['schemas']['ErrorTree'] = {
  _errors: [],
  messages: { _errors: ['Expected a list'], 0: { _errors: [] } },
};

export async function chat(baseUrl: string, secret: string) {
  const client = createClient<paths>({ baseUrl, headers: { authorization: \`Bearer \${secret}\` } });
  const { data, error } = await client.POST('/chat/completions', { body: ${BODY} });
  if (data === undefined) throw new Error(JSON.stringify(error));
  // A stream would be a text.
  if (typeof data === 'string') throw new Error('A stream was not asked for');
  return { text: data.choices[0]?.message.content ?? null, usd: data.cost.usd };
}
`,
  },
  '@hey-api/openapi-ts': {
    command: ['@hey-api/openapi-ts/bin/run.js', '-f', 'openapi-ts.config.mjs'],
    files: {
      'openapi-ts.config.mjs': `export default {
  input: './document.json',
  // Node reads TypeScript by its whole name.
  output: { path: 'client', importFileExtension: '.ts' },
  plugins: ['@hey-api/typescript', '@hey-api/sdk', '@hey-api/client-fetch'],
  logs: { file: false },
};
`,
    },
    program: `import { createClient } from "./client/client/index.ts";
import { postChatCompletions } from "./client/index.ts";

export async function chat(baseUrl: string, secret: string) {
  const client = createClient({ baseUrl, auth: () => secret });
  const { data, error } = await postChatCompletions({ client, body: ${BODY} });
  if (data === undefined) throw new Error(JSON.stringify(error));
  return { text: data.choices[0]?.message.content ?? null, usd: data.cost.usd };
}
`,
  },
  orval: {
    command: ['orval/dist/bin/orval.mjs', '--config', 'orval.config.mjs'],
    files: {
      'orval.config.mjs': `export default {
  farebox: {
    input: './document.json',
    output: {
      target: './client.ts',
      client: 'fetch',
      mode: 'single',
      baseUrl: { getBaseUrlFromSpecification: true },
    },
  },
};
`,
    },
    program: `import { postChatCompletions } from "./client.ts";

export async function chat(_baseUrl: string, secret: string) {
  const answer = await postChatCompletions(${BODY}, {
    headers: { authorization: \`Bearer \${secret}\` },
  });
  if (answer.status !== 200) throw new Error(JSON.stringify(answer.data));
  // A stream would be a text.
  if (typeof answer.data === 'string') throw new Error('A stream was not asked for');
  const { choices, cost } = answer.data;
  return { text: choices[0]?.message.content ?? null, usd: cost.usd };
}
`,
  },
} as const;

describe('a client generated from the OpenAPI document', () => {
  let upstream: TestUpstream;
  let farebox: TestApp;
  let folder: string;

  before(async () => {
    upstream = await TestUpstream.start();
    const price = 'price: { input: 1, output: 2 }, context: 4096';
    // With a payment rail the document contains every route; the node is never called.
    farebox = await startTestApp({
      yaml: `
engines: { rack: { url: "${upstream.url}" } }
models: [{ id: atlas, type: text, ${price}, traits: [default], replicas: [{ engine: rack }] }]
payments:
  facilitator: { expose: true }
  base: { payTo: '0x52908400098527886E0F7030069857D2E4169EE7', rpcUrl: 'http://127.0.0.1:9', gasKey: '0x${'11'.repeat(32)}' }
`,
    });
    const document = await (await fetch(`${farebox.url}/openapi.json`)).text();
    // Node strips no types below a folder of packages, so that it has to be beside the code.
    folder = mkdtempSync(join(tmpdir(), 'farebox-clients-'));
    symlinkSync(PACKAGES, join(folder, 'node_modules'));
    writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(STRICT));
    await Promise.all(
      Object.entries(GENERATORS).map(async ([name, { command, files, program }]) => {
        const cwd = join(folder, folderOf(name));
        mkdirSync(cwd);
        writeFileSync(join(cwd, 'document.json'), document);
        for (const [file, text] of Object.entries(files)) writeFileSync(join(cwd, file), text);
        writeFileSync(join(cwd, 'chat.ts'), program);
        const [script, ...args] = command;
        await run(process.execPath, [join(PACKAGES, script), ...args], {
          cwd,
          timeout: GENERATOR_LIMIT_MS,
        });
      }),
    );
  });
  after(async () => {
    rmSync(folder, { recursive: true, force: true });
    try {
      await farebox.audit();
    } finally {
      await Promise.all([farebox.stop(), upstream.kill()]);
    }
  });

  test('compiles under `tsc --strict`, with its libraries', async () => {
    const failed = run(process.execPath, [TSC, '-p', folder]);
    const { stdout } = await failed.catch((error: { stdout: string }) => error);
    assert.equal(stdout, '');
  });

  for (const name of Object.keys(GENERATORS)) {
    test(`of ${name} pays for a chat`, async () => {
      const { owner } = farebox;
      const { ledger } = farebox.app.stores;
      const before = (await ledger.balances(owner.accountId)).usdNano;
      const file = pathToFileURL(join(folder, folderOf(name), 'chat.ts')).href;
      const { chat } = (await import(file)) as ChatProgram;
      const { text, usd } = await chat(farebox.url, owner.secret);
      const paid = before - (await ledger.balances(owner.accountId)).usdNano;
      assert.equal(text, 'Hello ');
      assert.ok(paid > 0n);
      assert.equal(Number(paid) / 1e9, usd);
    });
  }
});

const STRICT = {
  compilerOptions: {
    strict: true,
    noEmit: true,
    target: 'es2025',
    lib: ['es2025', 'dom', 'dom.iterable'],
    module: 'nodenext',
    moduleResolution: 'nodenext',
    types: [],
    allowImportingTsExtensions: true,
  },
  include: ['.'],
  exclude: ['node_modules'],
};

function folderOf(name: string): string {
  return name.replaceAll(/\W+/g, '-');
}
