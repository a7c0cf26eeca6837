/**
 * The programs of the embedded engines and their npm packages: which packages a program needs on
 * this machine, by the lock file in `engines/<name>/`, and the folder that contains them.
 *
 * The packages are not installed with Farebox. Each set has its own folder, whose name contains a
 * digest of the contents and which exists only when it is complete: beside the code (an image or a
 * checkout) or in the data folder (the server fetches into it).
 */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod';
import { packagePath } from '../../core/package-root.ts';

/** Engines in start order, with their purpose for display. */
export const ENGINE_USES = {
  llama: 'chat and embeddings',
  sentences: 'embeddings of English sentences',
  cutout: 'background removal',
  speech: 'transcription and speech',
  media: 'video and audio, if ffmpeg is not installed',
} as const;

type ProgramSet = keyof typeof ENGINE_USES;

/**
 * The packages of an embedded engine, or one provider package with its dependencies. `providers` has
 * all provider packages, for the types and tests of a checkout.
 */
export type EngineSet = ProgramSet | 'providers' | `@ai-sdk/${string}`;

export const ENGINE_SETS = Object.keys(ENGINE_USES) as readonly ProgramSet[];

/** `@ai-sdk/google-vertex/anthropic` -> `@ai-sdk/google-vertex`; an API without a package has the interface. */
export function providerSet(provider: string): EngineSet {
  const [, name = 'provider'] = provider.split('/');
  return `@ai-sdk/${name}`;
}

export function engineUse(name: EngineSet): string {
  const uses: Readonly<Partial<Record<string, string>>> = ENGINE_USES;
  return uses[name] ?? (name === 'providers' ? 'all providers' : `the provider ${name}`);
}

/** GPU builds, installers and a WebRTC stack, which no engine loads. */
const UNUSED_PACKAGES = /(?:-cuda|-cuda-ext|-vulkan|\/adm-zip|\/global-agent|\/werift)$/;

export interface LockedPackage {
  /** Below the folder of the set, such as `node_modules/sharp`. */
  readonly path: string;
  readonly name: string;
  readonly version: string;
  readonly integrity: string;
}

export interface PackageSet {
  readonly name: EngineSet;
  /** The name of its folder: another version has another folder. */
  readonly folder: string;
  readonly packages: readonly LockedPackage[];
}

/** A machine in the terms of package files (`os`, `cpu`, `libc`). */
export interface Platform {
  readonly os: string;
  readonly cpu: string;
  /** `undefined` on systems with one C library. */
  readonly libc: 'glibc' | 'musl' | undefined;
}

const Dependencies = z.record(z.string(), z.string()).default({});
const Locked = z.object({
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

/** `llama/main` -> `engines/llama/main.ts` of a checkout, `dist/programs/llama/main.js` of a package. */
export function programUrl(name: string): URL {
  const isSource = import.meta.url.endsWith('.ts');
  const path = isSource ? `../../../engines/${name}.ts` : `../../programs/${name}.js`;
  return new URL(path, import.meta.url);
}

/** Beside the code: filled when an image is built, or before the tests of a checkout. */
export function ownEnginesFolder(): string {
  return packagePath('engines');
}

export function enginesFolder(dataFolder: string): string {
  return join(dataFolder, 'engines');
}

/** The folder of a set, `undefined` if the set was not fetched. */
export function findPackages(set: PackageSet, dataFolder: string | undefined): string | undefined {
  const fetched = dataFolder === undefined ? [] : [enginesFolder(dataFolder)];
  const found = [ownEnginesFolder(), ...fetched]
    .map((folder) => join(folder, set.folder))
    .find((folder) => existsSync(folder));
  if (found !== undefined || !set.name.startsWith('@')) return found;
  return findPackages(packageSet('providers'), dataFolder);
}

/** An engine's packages as its program resolves them; `undefined` if they were not fetched. */
export function fetchedPackages(name: EngineSet, dataFolder: string | undefined) {
  const folder = findPackages(packageSet(name), dataFolder);
  return folder === undefined ? undefined : { folder, names: enginePackages(name) };
}

export function missingPackages(name: EngineSet): string {
  return `"farebox engines pull ${name}" downloads the missing ${enginePackages(name).join(', ')}`;
}

export function enginePackages(name: EngineSet): readonly string[] {
  if (name.startsWith('@')) return [name];
  return Object.keys(readLock(name).packages['']?.dependencies ?? {});
}

export function packageSet(name: EngineSet, platform = thisPlatform()): PackageSet {
  const packages = closure(readLock(name), platform, programOf(name) === name ? '' : name);
  const contents = packages.map(({ path, integrity }) => `${path} ${integrity}`).sort();
  const { os, cpu, libc = '' } = platform;
  const digest = createHash('sha256').update([LAYOUT, os, cpu, libc, ...contents].join('\n'));
  const folder = `${programOf(name)}-${digest.digest('hex').slice(0, 16)}`;
  return { name, folder, packages };
}

function programOf(name: EngineSet): string {
  return name.startsWith('@') ? 'providers' : name;
}

/** Changes when other files of the same packages are kept. */
const LAYOUT = 'with-types';

function readLock(name: EngineSet): Lock {
  const path = packagePath(`engines/${programOf(name)}/package-lock.json`);
  return Lock.parse(JSON.parse(readFileSync(path, 'utf8')));
}

function thisPlatform(): Platform {
  const { platform: os, arch: cpu } = process;
  if (os !== 'linux') return { os, cpu, libc: undefined };
  // Node's report names the C library that it runs on; its type leaves the form open.
  const { header } = process.report.getReport() as { header?: { glibcVersionRuntime?: string } };
  return { os, cpu, libc: header?.glibcVersionRuntime === undefined ? 'musl' : 'glibc' };
}

/** All packages that the root of the lock or `only` depends on, as Node would resolve them. */
function closure(lock: Lock, platform: Platform, only: string): LockedPackage[] {
  const found = new Map<string, LockedPackage>();
  const open = [only === '' ? '' : `node_modules/${only}`];
  for (let path = open.pop(); path !== undefined; path = open.pop()) {
    const entry = lock.packages[path];
    if (entry === undefined || found.has(path) || !isWanted(path, entry, platform)) continue;
    const { version, integrity } = entry;
    found.set(path, { path, name: nameOf(path), version, integrity });
    // The lock contains the peers that npm installs.
    const { dependencies, optionalDependencies, peerDependencies } = entry;
    const needed = { ...dependencies, ...optionalDependencies, ...peerDependencies };
    for (const name of Object.keys(needed)) open.push(placeOf(lock, path, name));
  }
  found.delete('');
  return [...found.values()];
}

/** Some packages allow processors that their binary, according to its name, does not run on. */
const PROCESSOR = /-(x64|arm64|armv7l|riscv64)(?:-|$)/;

function isWanted(path: string, entry: Lock['packages'][string], machine: Platform): boolean {
  const { os, cpu, libc } = machine;
  const allows = (list: readonly string[] | undefined, value: string | undefined): boolean =>
    list === undefined || value === undefined || list.includes(value);
  if (UNUSED_PACKAGES.test(path) || (PROCESSOR.exec(path)?.[1] ?? cpu) !== cpu) return false;
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
