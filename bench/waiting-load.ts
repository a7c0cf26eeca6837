/** Sends one body over and over, as the long job of `waiting.ts`, until the process is ended. */
import { readFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { Pool } from 'undici';

const [url = '', key = '', file = '', type = ''] = process.argv.slice(2);
const body = await readFile(file);
const { origin, pathname: path } = new URL(url);
const pool = new Pool(origin, { connections: 1, headersTimeout: 0, bodyTimeout: 0 });
const headers = { authorization: `Bearer ${key}`, 'content-type': type };

process.on('disconnect', () => process.exit(0));
process.send?.({ url });
for (;;) {
  const { statusCode, body: reply } = await pool.request({ method: 'POST', path, headers, body });
  await reply.dump({ limit: Number.MAX_SAFE_INTEGER });
  // The limit per minute, or a full queue. Any other error would measure rejections.
  if (statusCode === 429 || statusCode === 503) await delay(500);
  else if (statusCode !== 200) throw new Error(`The load was rejected with ${statusCode}`);
}
