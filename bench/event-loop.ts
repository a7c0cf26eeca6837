/**
 * The longest delay of the event loop while one caller sends the worst input of each kind, measured
 * inside the server, one request after the other.
 *
 * Run: node bench/event-loop.ts
 */
import { once } from 'node:events';
import { startGateway, startProcess, stopAll } from './harness.ts';

const KIND_MS = 2_500;
const MEGABYTE = 1024 * 1024;

const upstream = await startProcess('./upstream.ts');
const gateway = await startGateway(upstream, {
  // Limits that let every input reach its handler, and long prompts an engine.
  env: { BENCH_CONTEXT: '100000000', BENCH_FAILURES: '1000000' },
});

interface Kind {
  readonly name: string;
  readonly path: string;
  readonly body: Buffer;
  readonly headers?: Readonly<Record<string, string>>;
}

const chat = (fields: object): Buffer =>
  Buffer.from(
    JSON.stringify({
      model: 'bench-model',
      messages: [{ role: 'user', content: 'hi' }],
      ...fields,
    }),
  );
const form = (bytes: Buffer): Buffer =>
  Buffer.concat([
    Buffer.from('--b\r\ncontent-disposition: form-data; name="image"; filename="a.png"\r\n\r\n'),
    bytes,
    Buffer.from('\r\n--b--\r\n'),
  ]);
const nested = (depth: number): string => '['.repeat(depth) + ']'.repeat(depth);
const rpcCall = '{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}';

const KINDS: readonly Kind[] = [
  { name: 'a plain chat', path: '/chat/completions', body: chat({}) },
  {
    name: 'one prompt of 30 MB',
    path: '/chat/completions',
    body: chat({ messages: [{ role: 'user', content: 'a '.repeat(15 * MEGABYTE) }] }),
  },
  {
    name: 'a prompt of 10 MB, every letter escaped',
    path: '/chat/completions',
    body: Buffer.from(
      `{"model":"bench-model","messages":[{"role":"user","content":"${'\\u0061'.repeat((10 * MEGABYTE) / 6)}"}]}`,
    ),
  },
  {
    name: '30 MB of lines',
    path: '/chat/completions',
    body: chat({
      messages: [{ role: 'user', content: 'A line of text\n'.repeat(1.9 * MEGABYTE) }],
    }),
  },
  {
    name: '30 MB of quotes',
    path: '/chat/completions',
    body: chat({ messages: [{ role: 'user', content: '"'.repeat(15 * MEGABYTE) }] }),
  },
  {
    name: '30 MB of Chinese',
    path: '/chat/completions',
    body: chat({ messages: [{ role: 'user', content: '字'.repeat(10 * MEGABYTE) }] }),
  },
  {
    name: '30 MB with an idempotency key',
    path: '/chat/completions',
    body: chat({ messages: [{ role: 'user', content: 'a '.repeat(15 * MEGABYTE) }] }),
    headers: { 'idempotency-key': 'bench' },
  },
  {
    name: '1.9 million numbers',
    path: '/chat/completions',
    body: chat({ numbers: Array.from({ length: 1_900_000 }, (_, at) => at) }),
  },
  {
    name: '2,000 messages',
    path: '/chat/completions',
    body: chat({ messages: Array.from({ length: 2_000 }, () => ({ role: 'user', content: 'a' })) }),
  },
  {
    name: '300,000 messages',
    path: '/chat/completions',
    body: chat({
      messages: Array.from({ length: 300_000 }, () => ({ role: 'user', content: 'a' })),
    }),
  },
  {
    name: '100,000 unknown members',
    path: '/chat/completions',
    body: chat(Object.fromEntries(Array.from({ length: 100_000 }, (_, at) => [`m${at}`, at]))),
  },
  {
    name: 'an image of 20 MB as base64',
    path: '/chat/completions',
    body: chat({
      messages: [
        {
          role: 'user',
          content: [
            {
              type: 'image_url',
              image_url: { url: `data:image/png;base64,${'A'.repeat(20 * MEGABYTE)}` },
            },
          ],
        },
      ],
    }),
  },
  {
    name: '100,000 wrong tools',
    path: '/chat/completions',
    body: chat({ tools: Array.from({ length: 100_000 }, () => ({ type: 1 })) }),
  },
  {
    name: 'nested a million deep',
    path: '/chat/completions',
    body: Buffer.from(`{"model":"bench-model","messages":${nested(1_000_000)}}`),
  },
  {
    name: '30 MB that are no JSON',
    path: '/chat/completions',
    body: Buffer.alloc(30 * MEGABYTE, '{'),
  },
  {
    name: 'embeddings of 2,048 texts',
    path: '/embeddings',
    body: Buffer.from(
      JSON.stringify({ model: 'bench-model', input: Array.from({ length: 2_048 }, () => 'a') }),
    ),
  },
  {
    name: 'embeddings of 30 MB',
    path: '/embeddings',
    body: Buffer.from(
      JSON.stringify({
        model: 'bench-model',
        input: Array.from({ length: 2_000 }, () => 'a '.repeat(7_500)),
      }),
    ),
  },
  {
    name: 'a form with 23 MB of line ends',
    path: '/image/background-remove',
    body: form(Buffer.alloc(23 * MEGABYTE, '\r\n-')),
    headers: { 'content-type': 'multipart/form-data; boundary=b' },
  },
  {
    name: 'RPC call of 30 MB of quotes',
    path: '/crypto/rpc/ethereum-mainnet',
    body: Buffer.from(
      JSON.stringify({
        jsonrpc: '2.0',
        id: 1,
        method: 'eth_call',
        params: ['"'.repeat(15 * MEGABYTE)],
      }),
    ),
  },
  {
    name: 'RPC batch of 100',
    path: '/crypto/rpc/ethereum-mainnet',
    body: Buffer.from(`[${Array.from({ length: 100 }, () => rpcCall).join(',')}]`),
  },
  {
    name: 'RPC batch of 100,000',
    path: '/crypto/rpc/ethereum-mainnet',
    body: Buffer.from(`[${Array.from({ length: 100_000 }, () => rpcCall).join(',')}]`),
  },
];

async function send(kind: Kind): Promise<number> {
  const answer = await fetch(gateway.url + kind.path, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      ...gateway.headers,
      ...kind.headers,
    },
    body: kind.body,
  });
  await answer.arrayBuffer();
  return answer.status;
}

console.log('input                                      responses          p99 ms   longest ms');
try {
  for (let warm = 0; warm < 300; warm += 1) await send({ ...KINDS[0]! });
  for (const kind of KINDS) {
    const statuses = new Map<number | string, number>();
    gateway.child.send('delays-from-here');
    const untilMs = performance.now() + KIND_MS;
    while (performance.now() < untilMs) {
      const status = await send(kind).catch(() => 'closed'); // the server may close the connection of a rejected upload
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
    }
    const answer = once(gateway.child, 'message');
    gateway.child.send('delays');
    const [{ p99Ms, maxMs }] = (await answer) as [{ p99Ms: number; maxMs: number }];
    const counts = [...statuses].map(([status, count]) => `${count} × ${status}`).join(', ');
    console.log(
      `${kind.name.padEnd(43)}${counts.padEnd(18)}${p99Ms.toFixed(1).padStart(7)}${maxMs.toFixed(1).padStart(13)}`,
    );
  }
} finally {
  await stopAll();
}
