/**
 * Reads personas from a folder: Markdown files with YAML front matter whose body is the prompt, and
 * YAML files. An invalid file is reported with its reason and does not affect the others.
 */
import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { parse } from 'yaml';
import * as z from 'zod';
import { PersonaSection } from '../../config/config.ts';
import { isoTime } from '../../core/clock.ts';
import { reasonOf } from '../../core/log.ts';

export type PersonaFile =
  | { readonly ok: true; readonly file: string; readonly persona: PersonaSection }
  | { readonly ok: false; readonly file: string; readonly reason: string };

const MAX_FILES = 10_000;
const MAX_FILE_BYTES = 1_000_000;

export async function readPersonaFolder(folder: string): Promise<PersonaFile[]> {
  const names = (await readdir(folder)).filter((name) => /\.(?:md|ya?ml)$/i.test(name)).toSorted();
  const files: PersonaFile[] = [];
  for (const name of names.slice(0, MAX_FILES)) files.push(await readPersonaFile(folder, name));
  return files;
}

async function readPersonaFile(folder: string, file: string): Promise<PersonaFile> {
  try {
    const path = join(folder, file);
    const info = await stat(path);
    if (info.size > MAX_FILE_BYTES) return { ok: false, file, reason: 'is larger than 1 MB' };
    const written = readFields(file, await readFile(path, 'utf8'));
    const stem = file.replace(/\.[^.]+$/, '').toLowerCase();
    const changedAt = isoTime(info.mtimeMs);
    const persona = PersonaSection.safeParse({
      slug: stem,
      name: stem,
      createdAt: changedAt,
      updatedAt: changedAt,
      ...written,
    });
    if (persona.success) return { ok: true, file, persona: persona.data };
    return { ok: false, file, reason: z.prettifyError(persona.error) };
  } catch (error) {
    return { ok: false, file, reason: reasonOf(error) }; // unreadable, or not YAML
  }
}

function readFields(file: string, content: string): Record<string, unknown> {
  const text = content.replace(/^\uFEFF/, '').replaceAll('\r\n', '\n');
  if (!file.toLowerCase().endsWith('.md')) return asObject(parseYaml(text));
  const head = /^---\n([\s\S]*?)\n---(?:\n|$)/.exec(text);
  const prompt = text.slice(head?.[0].length ?? 0).trim();
  return { ...(head === null ? {} : asObject(parseYaml(head[1] ?? ''))), prompt };
}

/** The schema `core` keeps dates as text; the alias limit stops exponential expansion. */
function parseYaml(text: string): unknown {
  return parse(text, { schema: 'core', maxAliasCount: 100 });
}

function asObject(value: unknown): Record<string, unknown> {
  if (value === null || value === undefined) return {};
  if (typeof value !== 'object' || Array.isArray(value)) throw new TypeError('holds no fields');
  return value as Record<string, unknown>; // an object that is no list
}
