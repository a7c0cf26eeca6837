/**
 * The file of a backup: a gzipped tar of a folder, encrypted with age if there is a recipient. Its
 * `manifest.json` has the size and SHA-256 of each other file.
 */
import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { open, readFile, readdir, stat, writeFile } from 'node:fs/promises';
import { join, sep } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { create, extract } from 'tar';
import * as z from 'zod';

const MANIFEST = 'manifest.json';
const AGE_START = 'age-encryption.org/v1';

const Manifest = z.strictObject({
  format: z.literal(1),
  /** Version of Farebox. */
  version: z.string(),
  createdMs: z.number(),
  /** Kind of the database that was copied. The copy is SQLite. */
  database: z.enum(['sqlite', 'postgres']),
  /** Figures of the audit of the copy. */
  audit: z.strictObject({
    accounts: z.number(),
    transfers: z.number(),
    owedNano: z.string(),
    revenueNano: z.string(),
  }),
  files: z.array(z.strictObject({ name: z.string(), bytes: z.number(), sha256: z.string() })),
});
export type Manifest = z.infer<typeof Manifest>;

/** Packs all files of `folder` and a manifest into the file `to`. */
export async function packArchive(
  folder: string,
  facts: Omit<Manifest, 'format' | 'files'>,
  to: string,
  recipient: string | undefined,
): Promise<void> {
  const files: Manifest['files'] = [];
  for (const name of await filesIn(folder)) {
    const path = join(folder, name);
    files.push({ name, bytes: (await stat(path)).size, sha256: await sha256Of(path) });
  }
  const manifest: Manifest = { format: 1, ...facts, files };
  await writeFile(join(folder, MANIFEST), JSON.stringify(manifest, undefined, 2));
  // The manifest comes first, so that a listing shows it at once.
  const names = [MANIFEST, ...files.map(({ name }) => name)];
  const packed = Readable.from(create({ cwd: folder, gzip: true, portable: true }, names));
  const stream = recipient === undefined ? packed : await encrypted(packed, recipient);
  await pipeline(stream, createWriteStream(to, { mode: 0o600 }));
}

/**
 * Unpacks the archive into the empty `folder` and checks every file against the manifest. Throws an error for the
 * operator if the archive is damaged, or encrypted for another identity.
 */
export async function unpackArchive(
  archive: string,
  folder: string,
  identity: string | undefined,
): Promise<Manifest> {
  const isEncrypted = await startsWithAge(archive);
  if (isEncrypted && identity === undefined) {
    throw new Error('The backup is encrypted: give the file of its private key with --identity');
  }
  const packed = createReadStream(archive);
  const stream = isEncrypted && identity !== undefined ? await decrypted(packed, identity) : packed;
  await pipeline(
    stream,
    extract({ cwd: folder, strict: true, noMtime: true, filter: isPlainFile }),
  );
  const manifest = Manifest.parse(JSON.parse(await readFile(join(folder, MANIFEST), 'utf8')));
  for (const { name, sha256 } of manifest.files) {
    if ((await sha256Of(join(folder, name))) === sha256) continue;
    throw new Error(`The backup is damaged: ${name} differs from the manifest`);
  }
  return manifest;
}

/** Links could lead out of the folder. `tar` itself refuses names that do. */
function isPlainFile(_path: string, entry: object): boolean {
  return 'type' in entry && (entry.type === 'File' || entry.type === 'Directory');
}

async function filesIn(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1))
    .map((name) => name.replaceAll(sep, '/'))
    .sort();
}

export async function sha256Of(file: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(file), hash);
  return hash.digest('hex');
}

async function encrypted(stream: Readable, recipient: string): Promise<Readable> {
  const { Encrypter } = await import('age-encryption');
  const encrypter = new Encrypter();
  encrypter.addRecipient(recipient);
  return Readable.fromWeb(await encrypter.encrypt(Readable.toWeb(stream)));
}

async function decrypted(stream: Readable, identity: string): Promise<Readable> {
  const { Decrypter } = await import('age-encryption');
  const decrypter = new Decrypter();
  decrypter.addIdentity(identity);
  try {
    return Readable.fromWeb(await decrypter.decrypt(Readable.toWeb(stream)));
  } catch (error) {
    throw new Error('The backup is encrypted for another private key', { cause: error });
  }
}

async function startsWithAge(file: string): Promise<boolean> {
  const handle = await open(file);
  try {
    const { buffer, bytesRead } = await handle.read({ buffer: Buffer.alloc(AGE_START.length) });
    return buffer.toString('latin1', 0, bytesRead) === AGE_START;
  } finally {
    await handle.close();
  }
}
