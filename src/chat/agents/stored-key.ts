/**
 * Secrets of an installation: created at the first start, then shared by all processes and
 * restarts.
 */
import type { Ids } from '../../core/ids.ts';
import type { Store } from '../../db/db.ts';

const KEY_BYTES = 32;

/** Returns the key with that name; creates it if it does not exist. */
export async function storedKey(store: Store, ids: Ids, name: string): Promise<Buffer> {
  await store.query(
    'INSERT INTO agents_key (name, secret_hex) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING',
    [name, ids.bytes(KEY_BYTES).toString('hex')],
  );
  const [row] = await store.query<{ readonly secret_hex: string }>(
    'SELECT secret_hex FROM agents_key WHERE name = $1',
    [name],
  );
  if (row === undefined) throw new Error(`The key "${name}" was not written`);
  return Buffer.from(row.secret_hex, 'hex');
}
