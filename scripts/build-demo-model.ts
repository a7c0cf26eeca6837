/**
 * Writes `assets/farebox-demo.gguf`, the demo model, from `assets/demo-text.md`: which word pieces
 * follow which, as a llama graph. No training, no randomness from outside: the same text gives the
 * same bytes, and a test compares them with the committed file.
 *
 * Run: `node scripts/build-demo-model.ts`
 */
import { readFileSync, writeFileSync } from 'node:fs';

import { type MetadataValue, writeGguf } from './demo-model/gguf-writer.ts';
import { buildTensors, type Followers, GRAPH } from './demo-model/word-graph.ts';
import {
  learnVocabulary,
  TURN_END,
  TURN_START,
  type Vocabulary,
} from './demo-model/word-pieces.ts';

const TEXT_FILE = new URL('../assets/demo-text.md', import.meta.url);
const MODEL_FILE = new URL('../assets/farebox-demo.gguf', import.meta.url);

const VOCABULARY_SIZE = 832;
const MAX_CONTEXT = 3;
/** Score of a follower by the length of the longest known context: longer is surer. */
const SCORE_BY_LENGTH = [0, 8, 12, 18] as const;
/** Many followers share one small code space: their score falls, so that their sum stays clear. */
const CROWD = 12;
/** The first paragraphs say what answers here: they begin more answers than the others. */
const INTRODUCTIONS = 3;
const INTRODUCTION_WEIGHT = 6;
const PIECE_KINDS = { normal: 1, unknown: 2, control: 3, byte: 6 } as const;

/** ChatML, with functions described in the Hermes way, so that tool calls can be forced. */
const CHAT_TEMPLATE = `{%- if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}

{% endif %}# Tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Answer with <tool_call>{"name": ..., "arguments": ...}</tool_call> to call one.<|im_end|>
{% endif %}{%- for message in messages %}{%- if not (loop.first and tools and message.role == 'system') %}<|im_start|>{{ message.role }}
{{ message.content or '' }}{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{%- endfor %}<|im_end|>
{% endif %}{%- endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}`;

/** The bytes of the model file for a training text of paragraphs; another template is for tests. */
export function buildDemoModel(text: string, template = CHAT_TEMPLATE): Buffer {
  const paragraphs = text.split('\n\n').map((paragraph) => paragraph.trim());
  const vocabulary = learnVocabulary(paragraphs.join('\n'), VOCABULARY_SIZE);
  const table = countFollowers(
    paragraphs.flatMap((paragraph, index) =>
      Array<number[]>(index < INTRODUCTIONS ? INTRODUCTION_WEIGHT : 1).fill(
        lesson(vocabulary, paragraph),
      ),
    ),
  );
  return writeGguf(
    metadataOf(vocabulary, table.length, template),
    buildTensors(vocabulary.pieces.length, table, mutedOf(vocabulary)),
  );
}

/** A paragraph as the pieces of an answer. JSON is never the beginning of an unasked answer. */
function lesson(vocabulary: Vocabulary, paragraph: string): number[] {
  const end = vocabulary.idOf(TURN_END);
  const pieces = vocabulary.cut(paragraph);
  if (paragraph.startsWith('{')) return [...pieces, end];
  return [vocabulary.idOf(TURN_START), ...vocabulary.cut('assistant\n'), ...pieces, end];
}

/** Single bytes and marks are read but never written, except the mark that ends an answer. */
function mutedOf(vocabulary: Vocabulary): Set<number> {
  const end = vocabulary.idOf(TURN_END);
  return new Set(
    vocabulary.pieces.flatMap((piece, id) => (piece.kind === 'normal' || id === end ? [] : [id])),
  );
}

interface Counted {
  readonly context: readonly number[];
  readonly counts: Map<number, number>;
  refined: boolean;
}

/** Counts followers for contexts of one to three pieces and keeps those that say something new. */
function countFollowers(lessons: readonly (readonly number[])[]): Followers[] {
  const contexts = new Map<string, Counted>();
  for (const pieces of lessons) {
    for (let at = 1; at < pieces.length; at += 1) {
      for (let length = 1; length <= Math.min(MAX_CONTEXT, at); length += 1) {
        count(contexts, pieces.slice(at - length, at), pieces[at] ?? 0);
      }
    }
  }
  const kept = [...contexts.values()].filter((entry) => {
    const shorter = contexts.get(keyOf(entry.context.slice(1)));
    if (shorter === undefined) return true;
    if (shorter.counts.size === 1) return false;
    shorter.refined = true;
    return true;
  });
  return kept.map((entry) => ({
    context: entry.context,
    boosts: boostsOf(entry, contexts.get(keyOf(entry.context.slice(1)))),
  }));
}

function keyOf(context: readonly number[]): string {
  return context.join(' ');
}

function count(contexts: Map<string, Counted>, context: readonly number[], next: number): void {
  const key = keyOf(context);
  const entry = contexts.get(key) ?? { context, counts: new Map<number, number>(), refined: false };
  entry.counts.set(next, (entry.counts.get(next) ?? 0) + 1);
  contexts.set(key, entry);
}

/** What this context adds to the scores that the shorter one has already given. */
function boostsOf(entry: Counted, shorter: Counted | undefined): Map<number, number> {
  const own = scoresOf(entry);
  const given = shorter === undefined ? new Map<number, number>() : scoresOf(shorter);
  return new Map([...own].map(([piece, score]) => [piece, score - (given.get(piece) ?? 0)]));
}

function scoresOf(entry: Counted): Map<number, number> {
  let total = 0;
  for (const times of entry.counts.values()) total += times;
  const length = entry.refined ? entry.context.length : MAX_CONTEXT;
  const base = SCORE_BY_LENGTH[length] ?? 0;
  const score = entry.counts.size > CROWD ? base * Math.sqrt(CROWD / entry.counts.size) : base;
  return new Map(
    [...entry.counts].map(([piece, times]) => [piece, score + Math.log(times / total)]),
  );
}

function metadataOf(
  vocabulary: Vocabulary,
  contexts: number,
  template: string,
): Map<string, MetadataValue> {
  const text = (value: string): MetadataValue => ({ kind: 'text', value });
  const whole = (value: number): MetadataValue => ({ kind: 'uint32', value });
  const flag = (value: boolean): MetadataValue => ({ kind: 'flag', value });
  const real = (value: number): MetadataValue => ({ kind: 'float32', value });
  const end = vocabulary.idOf(TURN_END);
  return new Map<string, MetadataValue>([
    ['general.architecture', text('llama')],
    ['general.name', text('farebox-demo')],
    ['general.license', text('apache-2.0')],
    ['general.description', text('Word statistics of a short text, for demonstration only')],
    ['llama.vocab_size', whole(vocabulary.pieces.length)],
    ['llama.context_length', whole(GRAPH.contextLength)],
    ['llama.embedding_length', whole(GRAPH.width)],
    ['llama.block_count', whole(1)],
    ['llama.feed_forward_length', whole(Math.ceil(contexts / 32) * 32)],
    ['llama.attention.head_count', whole(GRAPH.heads)],
    ['llama.attention.head_count_kv', whole(GRAPH.heads)],
    ['llama.attention.key_length', whole(GRAPH.headLength)],
    ['llama.attention.value_length', whole(GRAPH.headLength)],
    ['llama.attention.layer_norm_rms_epsilon', real(GRAPH.epsilon)],
    ['llama.rope.dimension_count', whole(GRAPH.headLength)],
    ['llama.rope.freq_base', real(GRAPH.rotaryBase)],
    // Mean: a vector of the demo model is the average of the codes of its pieces.
    ['llama.pooling_type', whole(1)],
    ['tokenizer.ggml.model', text('llama')],
    ['tokenizer.ggml.tokens', { kind: 'texts', value: vocabulary.pieces.map((p) => p.text) }],
    ['tokenizer.ggml.scores', { kind: 'floats', value: vocabulary.pieces.map((p) => p.score) }],
    [
      'tokenizer.ggml.token_type',
      { kind: 'integers', value: vocabulary.pieces.map((p) => PIECE_KINDS[p.kind]) },
    ],
    ['tokenizer.ggml.unknown_token_id', whole(0)],
    ['tokenizer.ggml.bos_token_id', whole(1)],
    ['tokenizer.ggml.eos_token_id', whole(end)],
    ['tokenizer.ggml.eot_token_id', whole(end)],
    ['tokenizer.ggml.add_bos_token', flag(false)],
    ['tokenizer.ggml.add_eos_token', flag(false)],
    // A leading space would move the generation prompt, and grammars would no longer start.
    ['tokenizer.ggml.add_space_prefix', flag(false)],
    ['tokenizer.chat_template', text(template)],
  ]);
}

if (import.meta.main) {
  const model = buildDemoModel(readFileSync(TEXT_FILE, 'utf8'));
  writeFileSync(MODEL_FILE, model);
  process.stdout.write(`assets/farebox-demo.gguf: ${model.length} bytes\n`);
}
