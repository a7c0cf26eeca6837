/** The transcription tab: transcribes a recording from a URL or a file. */
import { useSignal } from '@preact/signals';
import { request } from '../api.ts';
import { Drop } from '../parts/file-drop.tsx';
import { Field, Form, useAction } from '../parts/form.tsx';
import { Copy } from '../parts/values.tsx';
import { Empty, Failure } from '../parts/loaded.tsx';
import { formSamples, jsonSamples } from '../code-samples.ts';
import { CodeButton, ReceiptCost } from './parts.tsx';

interface Result {
  readonly transcript: string;
  readonly lang: string;
  readonly requestId: string;
}

interface Transcript {
  readonly transcript?: string;
  readonly lang?: string;
  readonly text?: string;
  readonly language?: string;
}

export function Transcription() {
  const url = useSignal('');
  const file = useSignal<File | undefined>(undefined);
  const result = useSignal<Result | undefined>(undefined);
  const action = useAction();
  const run = (path: string, body: unknown): void => {
    result.value = undefined;
    void action.run(async () => {
      const response = await request(path, { method: 'POST', body });
      const { transcript, text, lang, language } = (await response.json()) as Transcript; // documented
      result.value = {
        transcript: transcript ?? text ?? '',
        lang: lang ?? language ?? 'und',
        requestId: response.headers.get('x-request-id') ?? '',
      };
    });
  };
  const transcribeUrl = (): void => {
    file.value = undefined;
    run('/video/transcriptions', { url: url.value });
  };
  const take = ([given]: readonly File[]): void => {
    if (given === undefined) return;
    file.value = given;
    const body = new FormData();
    body.set('file', given);
    // This format contains the language.
    body.set('response_format', 'verbose_json');
    run('/audio/transcriptions', body);
  };
  return (
    <div class="split">
      <Form submit={transcribeUrl}>
        <Field
          label="URL of a recording"
          hint="A public audio or video file, which the server downloads. Charged per second of audio."
        >
          {(attributes) => (
            <input
              {...attributes}
              type="url"
              required
              placeholder="https://…"
              value={url.value}
              onInput={(event) => (url.value = event.currentTarget.value)}
            />
          )}
        </Field>
        <Drop
          label="Or a file"
          hint="An audio or video file up to 25 MB."
          accept="audio/*,video/*"
          take={take}
          isBusy={action.isRunning}
        />
        {file.value !== undefined && <p class="soft text">{file.value.name}</p>}
        {action.isRunning && <p role="status">Transcribing…</p>}
        {action.error !== undefined && <Failure error={action.error} />}
        <p class="row">
          <button type="submit" class="primary" disabled={action.isRunning}>
            Transcribe
          </button>
          <CodeButton
            samples={() =>
              file.value === undefined
                ? jsonSamples('/video/transcriptions', { url: url.value })
                : formSamples('/audio/transcriptions', { field: 'file', name: file.value.name })
            }
          />
        </p>
      </Form>
      <section aria-label="Result">
        {result.value === undefined ? (
          <Empty title="Transcript">
            <p>The text of the recording appears here.</p>
          </Empty>
        ) : (
          <>
            <p class="transcript text">
              {result.value.transcript === ''
                ? 'The recording contains no recognizable speech.'
                : result.value.transcript}
            </p>
            <p class="bill num row">
              <ReceiptCost requestId={result.value.requestId} />
              <span>language {result.value.lang}</span>
              <span class="row end">
                <Copy text={result.value.transcript} />
              </span>
            </p>
          </>
        )}
      </section>
    </div>
  );
}
