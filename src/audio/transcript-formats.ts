/** Writes a transcript in OpenAI's formats: JSON, text, subtitles. */
import type { Transcript } from './sell-transcription.ts';
import { durationUsage } from './transcript-stream.ts';
import type { TimedSegment, Granularity } from './transcription-engine.ts';

export type TranscriptFormat = 'json' | 'text' | 'srt' | 'vtt' | 'verbose_json';

interface FormattedBody {
  readonly type: string;
  readonly body: Buffer;
}

const MS = 1_000;

export function textBody(text: string, type = 'text/plain'): FormattedBody {
  return { type: `${type}; charset=utf-8`, body: Buffer.from(text) };
}

export function jsonBody(value: unknown): FormattedBody {
  return textBody(JSON.stringify(value), 'application/json');
}

export function formatTranscript(
  format: TranscriptFormat,
  times: readonly Granularity[],
  transcript: Transcript,
): FormattedBody {
  const { task, text, language = 'und', durationMs, pieces } = transcript;
  const segments = (): TimedSegment[] => pieces.flatMap((piece) => piece.segments);
  const usage = durationUsage(durationMs);
  switch (format) {
    case 'json':
      return jsonBody({ text, usage });
    case 'text':
      return textBody(text);
    case 'srt':
      return textBody(srtOf(segments()));
    case 'vtt':
      return textBody(vttOf(segments()), 'text/vtt');
    case 'verbose_json':
      return jsonBody({
        task,
        language,
        duration: durationMs / MS,
        text,
        ...(times.includes('segment') && { segments: segments().map(verboseSegment) }),
        ...(times.includes('word') && { words: pieces.flatMap((piece) => piece.words) }),
        usage,
      });
  }
}

const FRAMES_PER_SECOND = 100;

/** SDKs require every number, also those that an engine does not report: they get neutral values. */
function verboseSegment(one: TimedSegment, id: number) {
  return {
    id,
    seek: one.seek ?? Math.round(one.start * FRAMES_PER_SECOND),
    start: one.start,
    end: one.end,
    text: one.text,
    tokens: one.tokens ?? [],
    temperature: one.temperature ?? 0,
    avg_logprob: one.avg_logprob ?? 0,
    compression_ratio: one.compression_ratio ?? 1,
    no_speech_prob: one.no_speech_prob ?? 0,
  };
}

function srtOf(segments: readonly TimedSegment[]): string {
  return segments
    .map((one, index) => {
      // An arrow in the text would be parsed as the times of the next subtitle.
      const text = lineOf(one.text).replaceAll('-->', '->');
      return `${index + 1}\n${timeOf(one.start, ',')} --> ${timeOf(one.end, ',')}\n${text}\n\n`;
    })
    .join('');
}

const VTT_ESCAPES: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;' };

function vttOf(segments: readonly TimedSegment[]): string {
  const cues = segments.map((one) => {
    const text = lineOf(one.text).replaceAll(/[&<>]/g, (sign) => VTT_ESCAPES[sign] ?? sign);
    return `${timeOf(one.start, '.')} --> ${timeOf(one.end, '.')}\n${text}\n\n`;
  });
  return `WEBVTT\n\n${cues.join('')}`;
}

/** An empty line would end the subtitle. */
function lineOf(text: string): string {
  return text.trim().replaceAll(/\s+/g, ' ');
}

function timeOf(seconds: number, point: ',' | '.'): string {
  const ms = Math.round(seconds * MS);
  const two = (value: number): string => String(Math.floor(value)).padStart(2, '0');
  const clock = `${two(ms / 3_600_000)}:${two((ms / 60_000) % 60)}:${two((ms / MS) % 60)}`;
  return `${clock}${point}${String(ms % MS).padStart(3, '0')}`;
}
