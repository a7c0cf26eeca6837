/** Packages of the npm registry that tests use as files: pinned, and unpacked once. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readFile, rename, rm } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

export const TEST_CACHE = join(import.meta.dirname, '../../node_modules/.cache');
const MAX_TARBALL_BYTES = 128 * 1024 * 1024;
const FETCH_TIMEOUT_MS = 300_000;

export interface NpmPackage {
  /** Name and version. */
  readonly spec: string;
  /** SHA-512 of the tarball in base64. */
  readonly sha512: string;
}

/** The folder with the files of a package, which is downloaded once. Rejects with the reason. */
export async function unpackedPackage(one: NpmPackage): Promise<string> {
  const folder = join(TEST_CACHE, one.spec.replaceAll(/[@/]/g, '-'));
  if (existsSync(folder)) return folder;
  await mkdir(TEST_CACHE, { recursive: true });
  const making = await mkdtemp(`${folder}-`);
  try {
    await run('tar', ['-xzf', await downloadPackage(one, making), '-C', making]);
    await rename(join(making, 'package'), folder).catch((error: unknown) => {
      // Another process finished first.
      if (!existsSync(folder)) throw error;
    });
    return folder;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new Error(`The tests need ${one.spec} of the npm registry: ${reason}`, { cause: error });
  } finally {
    await rm(making, { recursive: true, force: true });
  }
}

/** Downloads a package and verifies it; returns the path of the tarball. */
export async function downloadPackage(
  { spec, sha512 }: NpmPackage,
  folder: string,
): Promise<string> {
  console.error(`Fetching ${spec} from the npm registry, once`);
  const options = { cwd: folder, maxBuffer: MAX_TARBALL_BYTES, timeout: FETCH_TIMEOUT_MS };
  const args = ['pack', spec, '--json', '--silent', '--fetch-retries=0'];
  const { stdout } = await run('npm', args, options);
  const [{ filename }] = JSON.parse(stdout) as [{ filename: string }]; // output of npm
  const path = join(folder, filename);
  const hash = createHash('sha512')
    .update(await readFile(path))
    .digest('base64');
  if (hash !== sha512) throw new Error('the package is not the pinned one');
  return path;
}
