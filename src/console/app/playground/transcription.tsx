/** The transcription tab: transcribes a recording from a URL or a file. */
import { useSignal } from '@preact/signals';
import { Drop } from '../parts/file-drop.tsx';
import { Form, TextField } from '../parts/form.tsx';
import { Copy } from '../parts/values.tsx';
import { Empty, Failure } from '../parts/loaded.tsx';
import { formSamples, jsonSamples } from '../code-samples.ts';
import { textIn } from '../request-history.ts';
import { HistoryList } from './history.tsx';
import { CodeButton } from './parts.tsx';
import { Bill, useTrial } from './trial.tsx';

interface Result {
  readonly transcript: string;
  readonly lang: string;
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
  const { outcome, action, history, send } = useTrial<Result>('transcription');
  const transcribeUrl = (): void => {
    file.value = undefined;
    const body = { url: url.value };
    send({ path: '/video/transcriptions', body, summary: url.value, read });
  };
  const take = ([given]: readonly File[]): void => {
    if (given === undefined) return;
    file.value = given;
    const body = new FormData();
    body.set('file', given);
    // This format contains the language.
    body.set('response_format', 'verbose_json');
    send({ path: '/audio/transcriptions', body, summary: given.name, read });
  };
  return (
    <div class="split">
      <Form submit={transcribeUrl}>
        <TextField
          label="URL of a recording"
          hint="A public audio or video file, which the server downloads. Charged per second of audio."
          type="url"
          required
          placeholder="https://…"
          value={url.value}
          onInput={(text) => (url.value = text)}
        />
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
        {outcome.value === undefined ? (
          <Empty title="Transcript">
            <p>The text of the recording appears here.</p>
          </Empty>
        ) : (
          <>
            <p class="transcript text">
              {outcome.value.data.transcript === ''
                ? 'The recording contains no recognizable speech.'
                : outcome.value.data.transcript}
            </p>
            <Bill of={outcome.value} notes={[`language ${outcome.value.data.lang}`]}>
              <Copy text={outcome.value.data.transcript} />
            </Bill>
          </>
        )}
        <HistoryList
          history={history}
          restore={(earlier) => {
            url.value = textIn(earlier, 'url');
          }}
        />
      </section>
    </div>
  );
}

async function read(response: Response): Promise<Result> {
  const { transcript, text, lang, language } = (await response.json()) as Transcript; // documented
  return { transcript: transcript ?? text ?? '', lang: lang ?? language ?? 'und' };
}
