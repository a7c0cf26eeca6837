/** The speech tab: converts a text to sound. */
import { useSignal } from '@preact/signals';
import { countText } from '../format.ts';
import { Select, TextArea, TextField } from '../parts/form.tsx';
import { textIn } from '../request-history.ts';
import { useModelChoice, useObjectUrl } from './parts.tsx';
import { Trial } from './trial.tsx';

export function Speech() {
  const choice = useModelChoice('tts');
  const text = useSignal('Every request is paid before its last byte is sent.');
  const voice = useSignal('');
  const speed = useSignal('1');
  const { voices = [], default_voice: usual } = choice.model?.model_spec ?? {};
  const chosen = voice.value === '' ? (usual ?? voices[0]) : voice.value;
  const body = {
    input: text.value,
    ...(chosen !== undefined && { voice: chosen }),
    ...(Number(speed.value) !== 1 && { speed: Number(speed.value) }),
  };
  return (
    <Trial
      kind="speech"
      path="/audio/speech"
      choice={choice}
      body={body}
      summary={text.value}
      isReady={text.value.trim() !== ''}
      verb="Speak"
      isRunningText="Speaking…"
      output="speech.mp3"
      emptyTitle="The sound appears here"
      emptyText="Each character of the text is charged."
      read={(response) => response.blob()}
      restore={(earlier) => {
        text.value = textIn(earlier, 'input');
        voice.value = textIn(earlier, 'voice');
        speed.value = textIn(earlier, 'speed') || '1';
      }}
      show={(sound) => <Player sound={sound} />}
      fields={
        <>
          <TextArea
            label="Text"
            hint={`${countText(text.value.length)} characters`}
            rows={6}
            value={text.value}
            onInput={(value) => (text.value = value)}
          />
          {voices.length > 0 && (
            <Select
              label="Voice"
              value={chosen ?? ''}
              options={voices.map((one) => [one, one] as const)}
              onInput={(one) => (voice.value = one)}
            />
          )}
          <TextField
            label="Speed"
            hint="1 is the normal speed."
            type="number"
            min="0.25"
            max="4"
            step="0.05"
            required
            value={speed.value}
            onInput={(value) => (speed.value = value)}
          />
        </>
      }
    />
  );
}

function Player({ sound }: { sound: Blob }) {
  const url = useObjectUrl(sound);
  if (url === undefined) return null;
  return (
    <figure class="made-sound">
      <audio src={url} controls aria-label="Speech" />
      <figcaption>
        <a href={url} download="speech">
          Download
        </a>
      </figcaption>
    </figure>
  );
}
