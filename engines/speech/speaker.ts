/**
 * `POST /v1/audio/speech` of the OpenAI API: English text to speech with a Piper voice. Nothing is
 * loaded before the first request.
 *
 * A text is spoken in pieces of at most a sentence, and each piece is one turn of the queue, so that
 * a short text of another caller finishes between the pieces of a long one. The encoder sends the
 * sound of a piece while the next one is computed.
 */
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import * as z from 'zod';
import { Fault } from '../../src/core/faults.ts';
import { JobQueue } from '../../src/core/job-queue.ts';
import { SPEECH_ENCODERS, type SpeechFormat } from '../../src/engines/media/media-task.ts';
import type { Media } from '../../src/engines/media/media.ts';
import { blockingTurn } from '../server/engine-queue.ts';
import { resolveFrom } from '../server/packages.ts';
import { readJson } from '../server/request-body.ts';
import { type EngineRequest, nativePackage } from '../server/server.ts';
import { loadPronouncer } from './load-pronouncer.ts';
import type { Pronouncer } from './pronounce.ts';
import { type Onnx, Voice, type VoiceFiles } from './voice.ts';

const MAX_BODY_BYTES = 1_000_000;
/** The server limits texts to fewer characters. */
const MAX_CHARACTERS = 10_000;
const RETRY_AFTER_SECONDS = 10;
const PAUSE_SECONDS = 0.15;
/** An encoder that has sent nothing by then waits for more sound. */
const FIRST_SOUND_MS = 1_000;
/** Longer than between two outputs of an encoder that has sound. */
const ENCODER_STEP_MS = 50;
/** Each has an encoder process; one caller never uses all of them. */
const SPEECHES = { running: 6, runningOfCaller: 3, waiting: 24, waitingOfCaller: 18 };

const Body = z.object({
  input: z.string().min(1).max(MAX_CHARACTERS),
  response_format: z.enum(Object.keys(SPEECH_ENCODERS) as SpeechFormat[]).default('mp3'),
  speed: z.number().min(0.25).max(4).default(1),
});

interface Loaded {
  readonly voice: Voice;
  readonly pronouncer: Pronouncer;
}

export type RuntimePackages = z.infer<typeof RuntimePackages>;
export const RuntimePackages = z.object({
  folder: z.string(),
  names: z.array(z.string()).readonly(),
});

export interface SpeakerParts {
  readonly media: Media;
  readonly threads: number;
  /** Shared with short recordings. */
  readonly queue: JobQueue;
  /** Called if there is no voice yet. */
  readonly requestVoice: () => void;
  /** The packages with the ONNX runtime. */
  readonly runtime: RuntimePackages | undefined;
}

export class Speaker {
  readonly #parts: SpeakerParts;
  readonly #speeches = new JobQueue({ ...SPEECHES, retryAfterSeconds: RETRY_AFTER_SECONDS });
  #files: VoiceFiles | undefined;
  #loading: Promise<Loaded> | undefined;

  constructor(parts: SpeakerParts) {
    this.#parts = parts;
  }

  use(files: VoiceFiles): void {
    this.#files = files;
    this.#loading = undefined;
  }

  async speak({ raw, caller, signal }: EngineRequest, response: ServerResponse): Promise<void> {
    const { input, response_format: format, speed } = await readJson(raw, MAX_BODY_BYTES, Body);
    const { voice, pronouncer } = await this.#load();
    const pieces = pronouncer.pieces(input);
    if (pieces.length === 0) {
      throw new Fault('INVALID_REQUEST', { message: 'input: The text has no words' });
    }
    const turn = blockingTurn(this.#parts.queue.turnsOf(caller, signal));
    const sent = { bytes: 0 };
    /** Waits until the encoder has sent the sound that it has. */
    async function firstSound(): Promise<void> {
      const endMs = performance.now() + FIRST_SOUND_MS;
      const headerBytes = sent.bytes;
      let before: number;
      do {
        before = sent.bytes;
        await delay(ENCODER_STEP_MS, undefined, { signal });
      } while ((before === headerBytes || sent.bytes > before) && performance.now() < endMs);
    }
    async function* samples(): AsyncGenerator<Buffer> {
      for (const [at, { phonemes, endsSentence }] of pieces.entries()) {
        const pauseSeconds = endsSentence ? PAUSE_SECONDS : 0;
        // The voice blocks the event loop, and with it the sound of the piece before.
        if (at === 1) await firstSound();
        yield await turn(() => voice.speak(phonemes, speed, pauseSeconds));
      }
    }
    const sound = { format, rate: voice.rate };
    const send = async (): Promise<void> => {
      response.setHeader('content-type', `audio/${format}`);
      for await (const chunk of this.#parts.media.encodeSpeech(samples(), sound, signal)) {
        sent.bytes += chunk.length;
        if (!response.write(chunk)) await once(response, 'drain', { signal });
      }
      response.end();
    };
    await this.#speeches.run(send, signal, caller);
  }

  async #load(): Promise<Loaded> {
    const files = this.#files;
    if (files === undefined) {
      this.#parts.requestVoice();
      throw new Fault('MODEL_OFFLINE', {
        message: 'The voice is being downloaded',
        retryAfterSeconds: RETRY_AFTER_SECONDS,
      });
    }
    this.#loading ??= load(files, this.#parts);
    try {
      return await this.#loading;
    } catch (error) {
      // The next request tries again.
      this.#loading = undefined;
      throw error;
    }
  }
}

async function load(files: VoiceFiles, { runtime, threads }: SpeakerParts): Promise<Loaded> {
  if (runtime !== undefined) resolveFrom(runtime);
  const ort = await nativePackage<Onnx>('onnxruntime-node', 'Speech');
  const voice = await Voice.load(ort, files, threads);
  return { voice, pronouncer: loadPronouncer() };
}
