/**
 * The OpenAI API of videos, as a model server has it: a job takes seconds, and can fail, disappear, or end
 * with a video that is not the ordered one. A video is a line of text with its prompt and its size, and spaces.
 */
import { readFileSync } from 'node:fs';
import { Fault } from '../../src/core/faults.ts';
import { Media } from '../../src/engines/media/media.ts';
import { type HttpMessage, JSON_TYPE, responseOf } from './http.ts';
import { world } from './world.ts';

interface Film {
  readonly id: string;
  readonly idempotency_key: string;
  readonly prompt: string;
  readonly readyMs: number;
  readonly end: 'completed' | 'failed' | 'damaged' | 'dropped';
}

const ENDS = ['completed', 'completed', 'completed', 'completed', 'completed', 'failed'] as const;
const FAILED_ENDS = ['failed', 'damaged', 'dropped'] as const;
const MAX_WORK_MS = 20_000;
const MAX_BYTES = 200_000;
const NOT_FOUND = responseOf(404, JSON_TYPE, '{"error":{"message":"no such video"}}');
const FILM = /^film of (.*), (\d+) bytes /;

export class VideoStudio {
  readonly #films = new Map<string, Film>();
  #count = 0;

  /** `isFailing`: whether a new video ends in the ways of failing servers. */
  respond({ head, body }: HttpMessage, isFailing: boolean): string {
    const [method, path = ''] = head.split(' ', 2);
    const [, , , id = '', part] = path.split(/[/?]/);
    if (method === 'post') return jsonOf(this.#make(head, body, isFailing));
    if (id.startsWith('limit')) return jsonOf({ data: [...this.#films.values()].reverse() });
    const film = this.#films.get(id);
    if (film === undefined || film.end === 'dropped') return NOT_FOUND;
    if (method === 'delete') this.#films.delete(id);
    return part === 'content'
      ? responseOf(200, 'video/mp4', contentOf(film))
      : jsonOf(stateOf(film));
  }

  #make(head: string, body: string, isFailing: boolean): object {
    const { random, nowMs } = world();
    const key = /\r\nidempotency-key: (\S+)/.exec(head)?.[1] ?? '';
    const before = [...this.#films.values()].find((one) => one.idempotency_key === key);
    if (before !== undefined) return stateOf(before);
    this.#count += 1;
    const film: Film = {
      id: `film_${this.#count}`,
      idempotency_key: key,
      prompt: /name="prompt"\r\n\r\n(.*)\r\n/.exec(body)?.[1] ?? '',
      readyMs: nowMs + random.between(1, MAX_WORK_MS),
      end: random.pick(isFailing ? FAILED_ENDS : ENDS),
    };
    this.#films.set(film.id, film);
    return stateOf(film);
  }
}

function stateOf({ id, end, readyMs }: Film): object {
  if (world().nowMs < readyMs) return { id, status: 'in_progress', progress: 50 };
  return { id, status: end === 'failed' ? 'failed' : 'completed' };
}

function contentOf({ prompt, end }: Film): string {
  const bytes = world().random.between(100, MAX_BYTES);
  const film = `film of ${prompt}, ${bytes} bytes `.padEnd(bytes);
  return end === 'damaged' ? film.slice(0, -1) : film;
}

function jsonOf(body: object): string {
  return responseOf(200, JSON_TYPE, JSON.stringify(body));
}

/** Whether the text is a whole video for the prompt. */
export function isFilm(text: string, prompt: string | undefined): boolean {
  const [, of, bytes] = FILM.exec(text) ?? [];
  return text.length === Number(bytes) && (prompt === undefined || of === prompt);
}

/** Replaces the programs that check a video, which are processes of their own. */
export function replaceMediaPrograms(): void {
  const checkVideo = async (path: string) => {
    if (!isFilm(readFileSync(path, 'latin1'), undefined))
      throw new Fault('INVALID_VIDEO_FORMAT', { message: 'The video is damaged' });
    const size = { width: 1_280, height: 720, seconds: 1, claimedSeconds: 1, frames: 24 };
    return { ...size, type: 'video/mp4', hasSound: true, isBlack: false, isSilent: false };
  };
  Media.open = async () => ({ checkVideo }) as unknown as Media; // all that a video without inputs needs
}
