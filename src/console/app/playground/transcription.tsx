/** Transcription: a recording, of the web or a file, as text. */
import { useSignal } from '@preact/signals';
import { request } from '../api.ts';
import { Drop } from '../parts/file-drop.tsx';
import { Field, Form, Refusal, useAction } from '../parts/form.tsx';
import { Copy } from '../parts/values.tsx';
import { Empty } from '../parts/loaded.tsx';
import { formSamples, jsonSamples } from '../samples.ts';
import { CodeButton, ReceiptCost } from './parts.tsx';

interface Result {
  readonly transcript: string;
  readonly lang: string;
  readonly requestId: string;
}

/** Of either route. */
interface Said {
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
  const run = (hear: () => Promise<Response>): void => {
    result.value = undefined;
    void action.run(async () => {
      const answer = await hear();
      const said = (await answer.json()) as Said; // as the routes promise
      result.value = {
        transcript: said.transcript ?? said.text ?? '',
        lang: said.lang ?? said.language ?? 'und',
        requestId: answer.headers.get('x-request-id') ?? '',
      };
    });
  };
  const hearUrl = (): void => {
    file.value = undefined;
    const body = { url: url.value };
    run(() => request('/video/transcriptions', { method: 'POST', body }));
  };
  const take = ([given]: readonly File[]): void => {
    if (given === undefined) return;
    file.value = given;
    const body = new FormData();
    body.set('file', given);
    // The form that tells the language.
    body.set('response_format', 'verbose_json');
    run(() => request('/audio/transcriptions', { method: 'POST', body }));
  };
  return (
    <div class="split">
      <Form submit={hearUrl}>
        <Field
          label="Address of a recording"
          hint="Sound or video that is public; the server fetches it. Charged per second of sound."
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
          label="Or a recording of yours"
          hint="The same formats, up to 25 MB."
          accept="audio/*,video/*"
          take={take}
          isBusy={action.isRunning}
        />
        {file.value !== undefined && <p class="soft text">{file.value.name}</p>}
        {action.isRunning && <p role="status">Listening…</p>}
        <Refusal error={action.error} />
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
          <Empty title="What was said" />
        ) : (
          <>
            <p class="transcript text">
              {result.value.transcript === '' ? 'Nothing was understood.' : result.value.transcript}
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
