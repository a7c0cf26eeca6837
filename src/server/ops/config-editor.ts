/**
 * Changes `farebox.yaml` for the console. A change is tried first: the changed text is loaded from a file beside the real
 * one. Only a valid text replaces the file, and the old one is kept as a version in the data folder. The running server
 * notices the new file as it does any other change.
 */
import { constants, existsSync } from 'node:fs';
import { access, mkdir, readFile, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import {
  CONFIG_FILE,
  type Config,
  type ConfigInForce,
  type ConfigInputs,
  SECTIONS,
  diffConfig,
  editSection,
  formatProblem,
  maskedText,
  readSection,
  reloadConfig,
  sectionSchema,
  sectionsIn,
  sourceOf,
} from '../../config/config.ts';
import { isoTime } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import type { Ids } from '../../core/ids.ts';
import { reasonOf } from '../../core/log.ts';
import { fileBehind } from '../../core/replace-file.ts';
import type { ChangedConfig, ConfigSection, ConfigSections } from './config-editor-schema.ts';

const KEPT_VERSIONS = 50;
const VERSION = /^(\d{13})-([a-zA-Z]+)\.yaml$/;
const PRIVATE = 0o600;

export interface ConfigEditorParts {
  readonly config: ConfigInForce;
  readonly ids: Ids;
  readonly nowMs: () => number;
  readonly inputs: Pick<ConfigInputs, 'env' | 'cwd'>;
}

export interface ChangeOptions {
  /** Digest of the text that the change is based on. */
  readonly digest: string;
  /** `true` changes nothing. */
  readonly isTrial: boolean;
}

type LoadedDraft = { readonly config: Config } | { readonly problems: readonly string[] };

export class ConfigEditor {
  readonly #parts: ConfigEditorParts;
  readonly #file: string;
  #running: Promise<unknown> = Promise.resolve();

  constructor(parts: ConfigEditorParts) {
    const { env, cwd } = parts.inputs;
    this.#parts = parts;
    this.#file = resolve(cwd, env['FAREBOX_CONFIG'] ?? CONFIG_FILE);
  }

  async sections(): Promise<ConfigSections> {
    const text = await this.#read();
    const present = sectionsIn(text);
    const readOnly = await this.#readOnlyReason();
    return {
      file: basename(this.#file),
      readOnly: readOnly ?? null,
      digest: digestOf(text),
      sections: Object.entries(SECTIONS).map(([name, { about, change }]) => ({
        name,
        about,
        needsRestart: change === 'restart',
        isSet: present.has(name),
      })),
      versions: (await this.#versions()).map(({ id, savedMs, section }) => ({
        id,
        savedAt: isoTime(savedMs),
        section,
      })),
    };
  }

  async section(name: string): Promise<ConfigSection> {
    const section = SECTIONS[knownName(name)];
    const text = await this.#read();
    return {
      name,
      about: section.about,
      needsRestart: section.change === 'restart',
      digest: digestOf(text),
      schema: sectionSchema(name),
      value: readSection(text, name) ?? null,
    };
  }

  /** The text of the file with its secrets, and the folder of its relative paths. */
  async state() {
    const text = await this.#read();
    const readOnly = (await this.#readOnlyReason()) ?? null;
    return { text, readOnly, digest: digestOf(text), folder: dirname(this.#file) };
  }

  /** `value`: the whole section; `null` removes it. */
  change(name: string, value: unknown, options: ChangeOptions): Promise<ChangedConfig> {
    knownName(name);
    return this.edit(name, options, (text) => editSection(text, name, value ?? undefined));
  }

  /** Loads the edited text without changing the file. */
  async load(edit: (text: string) => string): Promise<LoadedDraft> {
    const readOnly = await this.#readOnlyReason();
    if (readOnly !== undefined) throw new Fault('CONFIG_READ_ONLY', { message: readOnly });
    const after = await edited(await this.#read(), edit);
    return await this.#withDraft(after, (_draft, loaded) => Promise.resolve(loaded));
  }

  /** Replaces the file by an older version. */
  restore(id: string, options: ChangeOptions): Promise<ChangedConfig> {
    return this.edit('restored', options, async () => {
      const version = (await this.#versions()).find((one) => one.id === id);
      if (version === undefined) throw new Fault('NOT_FOUND');
      return await readFile(join(this.#versionsFolder, `${id}.yaml`), 'utf8');
    });
  }

  /** Changes the text of the file, one change at a time. `section` names the kept version. */
  edit(
    section: string,
    options: ChangeOptions,
    edit: (text: string) => string | Promise<string>,
  ): Promise<ChangedConfig> {
    const result = this.#running.then(() => this.#replaceNow(section, options, edit));
    this.#running = result.catch(() => undefined); // its caller handles the error
    return result;
  }

  async #replaceNow(
    section: string,
    { digest, isTrial }: ChangeOptions,
    edit: (text: string) => string | Promise<string>,
  ): Promise<ChangedConfig> {
    const readOnly = await this.#readOnlyReason();
    if (readOnly !== undefined) throw new Fault('CONFIG_READ_ONLY', { message: readOnly });
    const before = await this.#read();
    if (digestOf(before) !== digest) throw new Fault('CONFIG_CHANGED');
    const after = await edited(before, edit);
    const diff = await diffOf(before, after);
    return await this.#withDraft(after, async (draft, loaded) => {
      if (!('config' in loaded)) {
        return { ok: false, ...loaded, diff, digest, changed: [], restart: [] };
      }
      const { changed, restart } = diffConfig(this.#parts.config.current, loaded.config);
      const result = { ok: true, problems: [], diff, changed: [...changed], restart: [...restart] };
      if (isTrial || after === before) return { ...result, digest };
      await this.#keep(section, before);
      await this.#write(async () => rename(draft, await fileBehind(this.#file)));
      return { ...result, digest: digestOf(after) };
    });
  }

  /** Loads `text` from a file beside the real one, because relative paths start there. */
  async #withDraft<T>(
    text: string,
    work: (draft: string, loaded: LoadedDraft) => Promise<T>,
  ): Promise<T> {
    const draft = `${this.#file}.${this.#parts.ids.hex(4)}.draft`;
    try {
      await this.#write(() =>
        this.#mode().then((mode) => writeFile(draft, text, { mode, flush: true })),
      );
      return await work(draft, await this.#load(draft));
    } finally {
      await rm(draft, { force: true });
    }
  }

  /** A folder can be writable by its mode and still refuse, such as the mount of a single file. */
  async #write(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      // The whole reason has paths.
      const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
      const message = `${this.#readOnly} (${code})`;
      throw new Fault('CONFIG_READ_ONLY', { message });
    }
  }

  get #readOnly(): string {
    return `The server cannot write ${basename(this.#file)}: change it where it is managed`;
  }

  async #load(file: string): Promise<LoadedDraft> {
    const { env, cwd } = this.#parts.inputs;
    const loaded = await reloadConfig({ env: { ...env, FAREBOX_CONFIG: file }, cwd });
    if (loaded.ok) return loaded;
    const name = basename(this.#file);
    return {
      problems: loaded.problems.map((problem) =>
        formatProblem({ ...problem, file: problem.file === file ? name : problem.file }),
      ),
    };
  }

  async #keep(section: string, text: string): Promise<void> {
    await mkdir(this.#versionsFolder, { recursive: true, mode: 0o700 });
    const name = `${this.#parts.nowMs()}-${section}.yaml`;
    await writeFile(join(this.#versionsFolder, name), text, { mode: PRIVATE });
    const old = (await this.#versions()).slice(KEPT_VERSIONS).map(({ id }) => `${id}.yaml`);
    for (const one of old) {
      // After the clock was set back, the version that was just kept has the earliest time.
      if (one !== name) await rm(join(this.#versionsFolder, one));
    }
  }

  get #versionsFolder(): string {
    return join(this.#parts.config.current.dataFolder, 'config-versions');
  }

  /** Newest first. */
  async #versions() {
    if (!existsSync(this.#versionsFolder)) return [];
    const names = (await readdir(this.#versionsFolder)).filter((name) => VERSION.test(name));
    return names
      .sort()
      .toReversed()
      .map((name) => {
        const [, ms = '', section = ''] = VERSION.exec(name) ?? [];
        return { id: name.replace(/\.yaml$/, ''), savedMs: Number(ms), section };
      });
  }

  /** The text of the file; empty if there is none. */
  async #read(): Promise<string> {
    return existsSync(this.#file) ? await readFile(this.#file, 'utf8') : '';
  }

  async #mode(): Promise<number> {
    return existsSync(this.#file) ? (await stat(this.#file)).mode & 0o777 : PRIVATE;
  }

  async #readOnlyReason(): Promise<string | undefined> {
    const paths = [dirname(this.#file), ...(existsSync(this.#file) ? [this.#file] : [])];
    try {
      for (const path of paths) await access(path, constants.W_OK);
      return undefined;
    } catch {
      // For example a ConfigMap, or a file of another user.
      return this.#readOnly;
    }
  }
}

async function edited(
  text: string,
  edit: (text: string) => string | Promise<string>,
): Promise<string> {
  try {
    return await edit(text);
  } catch (error) {
    if (error instanceof Fault) throw error;
    // The message is for the operator.
    throw new Fault('INVALID_REQUEST', { message: reasonOf(error) });
  }
}

function knownName(name: string): keyof typeof SECTIONS {
  if (!Object.hasOwn(SECTIONS, name)) throw new Fault('NOT_FOUND');
  return name as keyof typeof SECTIONS; // checked
}

function digestOf(text: string): string {
  return sourceOf('', text).digest ?? '';
}

/** Unified diff of the masked texts, without its header. A secret that changes shows as equal lines. */
async function diffOf(before: string, after: string): Promise<string> {
  const { createPatch } = await import('diff');
  const patch = createPatch('farebox.yaml', maskedText(before), maskedText(after), '', '');
  return patch.split('\n').slice(4).join('\n');
}
