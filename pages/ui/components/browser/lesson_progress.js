// Keeps the progress of the lessons in the browser, so that a later visit without a link continues it.
const STORED = "bsc-lab-lessons";

export default function ({ data, setTriggerValue }) {
  try {
    if (data.forget) localStorage.removeItem(STORED);
    else if (data.done.length) localStorage.setItem(STORED, JSON.stringify(data));
    else if (localStorage.getItem(STORED)) setTriggerValue("stored", JSON.parse(localStorage.getItem(STORED)));
  } catch {} // storage is switched off, or its content is not JSON
}
