/** Non-streaming chats per second and their CPU, compared with a bare undici proxy. */
import { chatBody, compare, report, startPair, startProcess, stopAll } from './harness.ts';
import { compareByWrk, missingForWrk } from './wrk.ts';

const ROUNDS = Number(process.env['ROUNDS'] ?? '5');
const upstream = await startProcess('./fixed-upstream.ts');
const targets = await startPair(upstream);
try {
  const load = { path: '/chat/completions', connections: 64, windowMs: 1_000 };
  report(
    'chat JSON, 1 KB prompt',
    await compare(targets, { ...load, body: chatBody(1_000) }, ROUNDS),
  );
  report(
    'chat JSON, 100 KB prompt',
    await compare(targets, { ...load, body: chatBody(100_000) }, ROUNDS),
  );
  // Most SDKs request compression; the bare proxy forwards the response unchanged.
  const packed = { ...load, headers: { 'accept-encoding': 'gzip, deflate, br' } };
  report(
    'chat JSON, 1 KB prompt, responses in Brotli',
    await compare(targets, { ...packed, body: chatBody(1_000) }, ROUNDS),
  );
  report(
    'chat JSON, one caller',
    await compare(targets, { ...load, connections: 1, body: chatBody(1_000) }, ROUNDS),
  );
  report(
    'chat JSON, 500 requests a second',
    await compare(
      targets,
      { ...load, connections: 32, ratePerSecond: 500, body: chatBody(1_000) },
      ROUNDS,
    ),
  );
  const missing = missingForWrk();
  if (missing !== undefined) console.log(`\nNo figures by wrk: ${missing}`);
  else {
    const byWrk = { ...load, windowMs: 2_000 };
    for (const [title, bytes, connections] of [
      ['1 KB prompt', 1_000, 64],
      ['100 KB prompt', 100_000, 64],
      ['one caller', 1_000, 1],
    ] as const) {
      report(
        `chat JSON by wrk, one core for the server, ${title}`,
        await compareByWrk(
          targets,
          upstream.pid,
          { ...byWrk, connections, body: chatBody(bytes) },
          ROUNDS,
        ),
      );
    }
  }
} finally {
  await stopAll();
}
